"""The StreamsGroupDescribe API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int16, Int32, Int64, String, UInt16


@message(api_key=89, versions=(0, 0), flexible=0, listeners=("broker",))
class StreamsGroupDescribeRequest:
    """Ask for the state, topology and members of streams groups."""

    group_ids: list[String]
    include_authorized_operations: Bool


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
class Subtopology:
    subtopology_id: String
    source_topics: list[String]
    repartition_sink_topics: list[String]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


@struct
class Topology:
    epoch: Int32
    subtopologies: list[Subtopology] | None = field(default=None)


@struct
class Endpoint:
    host: String
    port: UInt16


@struct
class TaskOffset:
    subtopology_id: String
    partition: Int32
    offset: Int64


@struct
class TaskIds:
    subtopology_id: String
    partitions: list[Int32]


@struct
class Assignment:
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@struct
class Member:
    member_id: String
    member_epoch: Int32
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    client_id: String
    client_host: String
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: Bool


@struct
class DescribedGroup:
    error_code: Int16
    error_message: String | None = field(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    topology: Topology | None = field(default=None)
    members: list[Member]
    authorized_operations: Int32 = field(default=-(2**31))


@message(api_key=89, versions=(0, 0), flexible=0)
class StreamsGroupDescribeResponse:
    """The state, topology and members of streams groups."""

    throttle_time_ms: Int32
    groups: list[DescribedGroup]
