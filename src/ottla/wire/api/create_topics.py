"""The CreateTopics API, all versions."""

from collections.abc import Sequence

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Bool, Int8, Int16, Int32, String, Uuid


@struct
class CreatableReplicaAssignment:
    partition_index: Int32
    broker_ids: list[Int32]


@struct
class CreatableTopicConfig:
    name: String
    value: String | None


@struct
class CreatableTopic:
    name: String
    num_partitions: Int32  # -1: the broker's default.
    replication_factor: Int16  # -1: the broker's default.
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


@message(api_key=19, versions=(2, 7), flexible=5, listeners=("broker", "controller"))
class CreateTopicsRequest:
    """Create topics."""

    topics: list[CreatableTopic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field(default=False)  # Check, but change nothing.


@struct
class CreatableTopicConfigs:
    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool


@struct
class CreatableTopicResult:
    name: String
    topic_id: Uuid = field(since=7, default=NO_UUID, ignorable=True)
    error_code: Int16
    error_message: String | None
    topic_config_error_code: Int16 = field(since=5, tag=0, default=0, ignorable=True)
    num_partitions: Int32 = field(since=5, default=-1, ignorable=True)
    replication_factor: Int16 = field(since=5, default=-1, ignorable=True)
    configs: Sequence[CreatableTopicConfigs] | None = field(since=5, default=[], ignorable=True)


@message(api_key=19, versions=(2, 7), flexible=5)
class CreateTopicsResponse:
    """The outcome per topic, and the settings it got."""

    throttle_time_ms: Int32
    topics: list[CreatableTopicResult]
