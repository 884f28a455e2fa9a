"""The UnregisterBroker API, all versions."""

from ottla.wire.schema import message
from ottla.wire.types import Int16, Int32, String


@message(api_key=64, versions=(0, 0), flexible=0, listeners=("broker", "controller"))
class UnregisterBrokerRequest:
    """Remove a broker that will not come back."""

    broker_id: Int32


@message(api_key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerResponse:
    """Whether the broker was removed."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
