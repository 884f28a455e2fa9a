"""The SaslHandshake API, all versions."""

from ottla.wire.schema import message
from ottla.wire.types import Int16, String


@message(api_key=17, versions=(0, 1), listeners=("broker", "controller"))
class SaslHandshakeRequest:
    """Choose the SASL mechanism."""

    mechanism: String


@message(api_key=17, versions=(0, 1))
class SaslHandshakeResponse:
    """Whether the mechanism is enabled, and which are."""

    error_code: Int16
    mechanisms: list[String]
