"""The CreateAcls API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int16, Int32, String


@struct
class AclCreation:
    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = field(default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message(api_key=30, versions=(1, 3), flexible=2, listeners=("broker", "controller"))
class CreateAclsRequest:
    """Add rules of access."""

    creations: list[AclCreation]


@struct
class AclCreationResult:
    error_code: Int16
    error_message: String | None


@message(api_key=30, versions=(1, 3), flexible=2)
class CreateAclsResponse:
    """The outcome per rule, in the order of the request."""

    throttle_time_ms: Int32
    results: list[AclCreationResult]
