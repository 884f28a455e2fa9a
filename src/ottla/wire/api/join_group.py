"""The JoinGroup API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Bytes, Int16, Int32, String


@struct
class JoinGroupRequestProtocol:
    name: String
    metadata: Bytes


@message(api_key=11, versions=(0, 9), flexible=6, listeners=("broker",))
class JoinGroupRequest:
    """Join a classic group and offer ways to assign partitions."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field(since=1, default=-1, ignorable=True)  # Version 0 uses session_timeout_ms.
    member_id: String
    group_instance_id: String | None = field(since=5, default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: String | None = field(since=8, default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: String
    group_instance_id: String | None = field(since=5, default=None, ignorable=True)
    metadata: Bytes


@message(api_key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse:
    """The generation that was formed; its leader also gets the members."""

    throttle_time_ms: Int32 = field(since=2, default=0, ignorable=True)
    error_code: Int16
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field(since=7, default=None, ignorable=True)
    protocol_name: String | None = field(nullable_since=7)
    leader: String
    skip_assignment: Bool = field(since=9, default=False)
    member_id: String
    members: list[JoinGroupResponseMember]
