"""The ListConfigResources API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int16, Int32, String


@message(api_key=74, versions=(0, 1), flexible=0, listeners=("broker",))
class ListConfigResourcesRequest:
    """List the resources that have settings."""

    resource_types: list[Int8] = field(since=1, default=[])


@struct
class ConfigResource:
    resource_name: String
    resource_type: Int8 = field(since=1, default=16, ignorable=True)


@message(api_key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    """The resources that have settings."""

    throttle_time_ms: Int32
    error_code: Int16
    config_resources: list[ConfigResource]
