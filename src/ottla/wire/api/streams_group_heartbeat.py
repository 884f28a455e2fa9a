"""The StreamsGroupHeartbeat API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int8, Int16, Int32, Int64, String, UInt16


@struct
class KeyValue:
    key: String
    value: String


@struct
class TopicInfo:
    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


@struct
class CopartitionGroup:
    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


@struct
class Subtopology:
    subtopology_id: String
    source_topics: list[String]
    source_topic_regex: list[String]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[String]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


@struct
class Topology:
    epoch: Int32
    subtopologies: list[Subtopology]


@struct
class TaskIds:
    subtopology_id: String
    partitions: list[Int32]


@struct
class Endpoint:
    host: String
    port: UInt16


@struct
class TaskOffset:
    subtopology_id: String
    partition: Int32
    offset: Int64


@message(api_key=88, versions=(0, 0), flexible=0, listeners=("broker",))
class StreamsGroupHeartbeatRequest:
    """Join, stay in or leave a streams group, and report its tasks (KIP-1071)."""

    group_id: String
    member_id: String
    member_epoch: Int32  # 0 join, -1 leave, -2 leave for a while (static member).
    endpoint_information_epoch: Int32
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    topology: Topology | None = field(default=None)
    active_tasks: list[TaskIds] | None = field(default=None)
    standby_tasks: list[TaskIds] | None = field(default=None)
    warmup_tasks: list[TaskIds] | None = field(default=None)
    process_id: String | None = field(default=None)
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue] | None = field(default=None)
    task_offsets: list[TaskOffset] | None = field(default=None)
    task_end_offsets: list[TaskOffset] | None = field(default=None)
    shutdown_application: Bool = field(default=False)


@struct
class Status:
    status_code: Int8
    status_detail: String


@struct
class TopicPartition:
    topic: String
    partitions: list[Int32]


@struct
class EndpointToPartitions:
    user_endpoint: Endpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


@message(api_key=88, versions=(0, 0), flexible=0)
class StreamsGroupHeartbeatResponse:
    """The member's epoch and the tasks it should run."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    member_id: String
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    acceptable_recovery_lag: Int32
    task_offset_interval_ms: Int32
    status: list[Status] | None
    active_tasks: list[TaskIds] | None = field(default=None)
    standby_tasks: list[TaskIds] | None = field(default=None)
    warmup_tasks: list[TaskIds] | None = field(default=None)
    endpoint_information_epoch: Int32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(default=None)
