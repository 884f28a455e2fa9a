"""The headers of requests and responses inside their frames."""

from ottla.wire.schema import field, message
from ottla.wire.types import Int16, Int32, String


@message(versions=(1, 2), flexible=2)
class RequestHeader:
    """Precedes every request: API, version, and the correlation id that its response will carry."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: String | None = field(compact=False)


@message(versions=(0, 1), flexible=1)
class ResponseHeader:
    """Precedes every response: the correlation id of the request."""

    correlation_id: Int32
