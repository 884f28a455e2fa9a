"""The SyncGroup API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bytes, Int16, Int32, String


@struct
class SyncGroupRequestAssignment:
    member_id: String
    assignment: Bytes


@message(api_key=14, versions=(0, 5), flexible=4, listeners=("broker",))
class SyncGroupRequest:
    """The leader of a classic group hands in the assignment; the others ask for theirs."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(since=3, default=None)
    protocol_type: String | None = field(since=5, default=None, ignorable=True)
    protocol_name: String | None = field(since=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]


@message(api_key=14, versions=(0, 5), flexible=4)
class SyncGroupResponse:
    """The member's part of the assignment."""

    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    error_code: Int16
    protocol_type: String | None = field(since=5, default=None, ignorable=True)
    protocol_name: String | None = field(since=5, default=None, ignorable=True)
    assignment: Bytes
