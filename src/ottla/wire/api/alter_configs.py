"""The AlterConfigs API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int8, Int16, Int32, String


@struct
class AlterableConfig:
    name: String
    value: String | None = field(secret=True)


@struct
class AlterConfigsResource:
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


@message(api_key=33, versions=(0, 2), flexible=2, listeners=("broker", "controller"))
class AlterConfigsRequest:
    """Replace all settings of topics or brokers; superseded by IncrementalAlterConfigs."""

    resources: list[AlterConfigsResource]
    validate_only: Bool  # Check, but change nothing.


@struct
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String


@message(api_key=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse:
    """The outcome per resource whose settings were replaced."""

    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]
