"""The DeleteGroups API, all versions."""

from ottla.wire.schema import message, struct
from ottla.wire.types import Int16, Int32, String


@message(api_key=42, versions=(0, 2), flexible=2, listeners=("broker",))
class DeleteGroupsRequest:
    """Delete empty groups and their offsets."""

    groups_names: list[String]


@struct
class DeletableGroupResult:
    group_id: String
    error_code: Int16


@message(api_key=42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    """The outcome per group."""

    throttle_time_ms: Int32
    results: list[DeletableGroupResult]
