"""The LeaveGroup API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, String


@struct
class MemberIdentity:
    member_id: String
    group_instance_id: String | None = field(default=None)
    reason: String | None = field(since=5, default=None, ignorable=True)


@message(api_key=13, versions=(0, 5), flexible=4, listeners=("broker",))
class LeaveGroupRequest:
    """Leave a classic group, or remove members from it."""

    group_id: String
    member_id: String = field(until=2, default="")
    members: list[MemberIdentity] = field(since=3, default=[])


@struct
class MemberResponse:
    member_id: String
    group_instance_id: String | None
    error_code: Int16


@message(api_key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse:
    """The outcome per member."""

    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    error_code: Int16
    members: list[MemberResponse] = field(since=3, default=[])
