"""The SaslAuthenticate API, all versions."""

from ottla.wire.schema import field, message
from ottla.wire.types import Bytes, Int16, Int64, String


@message(api_key=36, versions=(0, 2), flexible=2, listeners=("broker", "controller"))
class SaslAuthenticateRequest:
    """One step of a SASL conversation, from the client."""

    auth_bytes: Bytes = field(secret=True)


@message(api_key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse:
    """One step of a SASL conversation, from the server."""

    error_code: Int16
    error_message: String | None
    auth_bytes: Bytes = field(secret=True)
    session_lifetime_ms: Int64 = field(since=1, default=0, ignorable=True)
