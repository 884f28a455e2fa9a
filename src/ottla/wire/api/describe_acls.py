"""The DescribeAcls API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int16, Int32, String


@message(api_key=29, versions=(1, 3), flexible=2, listeners=("broker", "controller"))
class DescribeAclsRequest:
    """List the rules of access that match a filter."""

    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = field(default=3)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@struct
class AclDescription:
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@struct
class DescribeAclsResource:
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=3)
    acls: list[AclDescription]


@message(api_key=29, versions=(1, 3), flexible=2)
class DescribeAclsResponse:
    """The matching rules, by resource."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    resources: list[DescribeAclsResource]
