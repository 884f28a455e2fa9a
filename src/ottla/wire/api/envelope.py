"""The Envelope API, all versions."""

from ottla.wire.schema import field, message
from ottla.wire.types import Bytes, Int16


@message(api_key=58, versions=(0, 0), flexible=0, listeners=("controller",))
class EnvelopeRequest:
    """A broker passes a client's request on to the controller, with the client's principal and address."""

    request_data: Bytes
    request_principal: Bytes | None
    client_host_address: Bytes


@message(api_key=58, versions=(0, 0), flexible=0)
class EnvelopeResponse:
    """The controller's answer to a request passed on."""

    response_data: Bytes | None = field(default=None)
    error_code: Int16
