"""The DeleteAcls API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int16, Int32, String


@struct
class DeleteAclsFilter:
    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = field(default=3)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@message(api_key=31, versions=(1, 3), flexible=2, listeners=("broker", "controller"))
class DeleteAclsRequest:
    """Remove the rules of access that match filters."""

    filters: list[DeleteAclsFilter]


@struct
class DeleteAclsMatchingAcl:
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@struct
class DeleteAclsFilterResult:
    error_code: Int16
    error_message: String | None
    matching_acls: list[DeleteAclsMatchingAcl]


@message(api_key=31, versions=(1, 3), flexible=2)
class DeleteAclsResponse:
    """Per filter, the rules that were removed."""

    throttle_time_ms: Int32
    filter_results: list[DeleteAclsFilterResult]
