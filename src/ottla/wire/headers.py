"""What precedes every request and response inside its frame."""

from ottla.wire.schema import field, message
from ottla.wire.types import Int16, Int32, String


@message(versions=(1, 2), flexible=2)
class RequestHeader:
    """What precedes every request: which it is, in which version, and the number its answer will carry."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: String | None = field(compact=False)


@message(versions=(0, 1), flexible=1)
class ResponseHeader:
    """What precedes every response: the number of the request it answers."""

    correlation_id: Int32
