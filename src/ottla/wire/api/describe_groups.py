"""The DescribeGroups API, all versions."""

from collections.abc import Sequence

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Bytes, Int16, Int32, String


@message(api_key=15, versions=(0, 6), flexible=5, listeners=("broker",))
class DescribeGroupsRequest:
    """Ask for the state and members of classic groups."""

    groups: list[String]
    include_authorized_operations: Bool = field(since=3, default=False)


@struct
class DescribedGroupMember:
    member_id: String
    group_instance_id: String | None = field(since=4, default=None, ignorable=True)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


@struct
class DescribedGroup:
    error_code: Int16
    error_message: String | None = field(since=6, default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: Sequence[DescribedGroupMember]
    authorized_operations: Int32 = field(since=3, default=-(2**31))


@message(api_key=15, versions=(0, 6), flexible=5)
class DescribeGroupsResponse:
    """The state and members of classic groups."""

    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    groups: list[DescribedGroup]
