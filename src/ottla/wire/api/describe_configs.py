"""The DescribeConfigs API, all versions."""

from collections.abc import Sequence

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int8, Int16, Int32, String


@struct
class DescribeConfigsResource:
    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None  # Null: all of them.


@message(api_key=32, versions=(1, 4), flexible=4, listeners=("broker", "controller"))
class DescribeConfigsRequest:
    """Read the settings of topics, brokers, groups and clients' metrics."""

    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = field(default=False)
    include_documentation: Bool = field(since=3, default=False)


@struct
class DescribeConfigsSynonym:
    name: String
    value: String | None
    source: Int8


@struct
class DescribeConfigsResourceResult:
    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: Int8 = field(since=3, default=0, ignorable=True)
    documentation: String | None = field(since=3, default="", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
    configs: Sequence[DescribeConfigsResourceResult]


@message(api_key=32, versions=(1, 4), flexible=4)
class DescribeConfigsResponse:
    """The settings asked for, where each value comes from, and what it is for."""

    throttle_time_ms: Int32
    results: list[DescribeConfigsResult]
