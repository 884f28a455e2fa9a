"""The IncrementalAlterConfigs API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int8, Int16, Int32, String


@struct
class AlterableConfig:
    name: String
    config_operation: Int8
    value: String | None = field(secret=True)


@struct
class AlterConfigsResource:
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


@message(api_key=44, versions=(0, 1), flexible=1, listeners=("broker", "controller"))
class IncrementalAlterConfigsRequest:
    """Set, delete, append to or subtract from single settings."""

    resources: list[AlterConfigsResource]
    validate_only: Bool  # Check, but change nothing.


@struct
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String


@message(api_key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    """The outcome per resource."""

    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]
