"""The BrokerHeartbeat API, all versions."""

from ottla.wire.schema import field, message
from ottla.wire.types import Bool, Int16, Int32, Int64, Uuid


@message(api_key=63, versions=(0, 2), flexible=0, listeners=("controller",))
class BrokerHeartbeatRequest:
    """A broker shows the controller that it lives, and what it wants: to start, serve or stop."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    current_metadata_offset: Int64  # How far the broker has read the metadata log.
    want_fence: Bool
    want_shut_down: Bool
    offline_log_dirs: list[Uuid] = field(since=1, tag=0, default=[])
    cordoned_log_dirs: list[Uuid] | None = field(since=2, tag=1, default=None)


@message(api_key=63, versions=(0, 2), flexible=0)
class BrokerHeartbeatResponse:
    """What the controller thinks of the broker, and whether it may go on or shut down."""

    throttle_time_ms: Int32
    error_code: Int16
    is_caught_up: Bool = field(default=False)
    is_fenced: Bool = field(default=True)
    should_shut_down: Bool
