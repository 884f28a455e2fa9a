"""The ListGroups API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, String


@message(api_key=16, versions=(0, 5), flexible=3, listeners=("broker",))
class ListGroupsRequest:
    """List the groups a broker coordinates."""

    states_filter: list[String] = field(since=4, default=[])
    types_filter: list[String] = field(since=5, default=[])


@struct
class ListedGroup:
    group_id: String
    protocol_type: String
    group_state: String = field(since=4, default="", ignorable=True)
    group_type: String = field(since=5, default="", ignorable=True)


@message(api_key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse:
    """The groups a broker coordinates, with state and type."""

    throttle_time_ms: Int32 = field(since=1, default=0, ignorable=True)
    error_code: Int16
    groups: list[ListedGroup]
