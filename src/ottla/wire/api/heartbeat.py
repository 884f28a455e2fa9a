"""The Heartbeat API, all versions."""

from ottla.wire.schema import field, message
from ottla.wire.types import Int16, Int32, String


@message(api_key=12, versions=(0, 4), flexible=4, listeners=("broker",))
class HeartbeatRequest:
    """A member of a classic group shows that it lives."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(since=3, default=None)


@message(api_key=12, versions=(0, 4), flexible=4)
class HeartbeatResponse:
    """Whether the member may go on or must join again."""

    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    error_code: Int16
