"""Records of `__consumer_offsets`: streams groups."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int16, Int32, Int64, String, UInt16


@message(record_type=17, versions=(0, 0))
class StreamsGroupMetadataKey:
    """Key of a streams group's epoch."""

    group_id: String


@struct
class LastAssignmentConfig:
    key: String
    value: String


@message(record_type=17, versions=(0, 0), flexible=0)
class StreamsGroupMetadataValue:
    """A streams group's epoch and the settings of its last assignment."""

    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = field(tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(tag=1, default=[])


@message(record_type=19, versions=(0, 0))
class StreamsGroupMemberMetadataKey:
    """Key of the metadata of a member of a streams group."""

    group_id: String
    member_id: String


@struct
class Endpoint:
    host: String
    port: UInt16


@struct
class KeyValue:
    key: String
    value: String


@message(record_type=19, versions=(0, 0), flexible=0)
class StreamsGroupMemberMetadataValue:
    """The metadata of a member of a streams group: its process, endpoint and tags."""

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    rebalance_timeout_ms: Int32 = field(default=-1)
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue]


@message(record_type=20, versions=(0, 0))
class StreamsGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a streams group's target assignment."""

    group_id: String


@message(record_type=20, versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMetadataValue:
    """The epoch of a streams group's target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


@message(record_type=21, versions=(0, 0))
class StreamsGroupTargetAssignmentMemberKey:
    """Key of the tasks a member of a streams group should run."""

    group_id: String
    member_id: String


@struct
class TargetAssignmentMemberTaskIds:
    subtopology_id: String
    partitions: list[Int32]


@message(record_type=21, versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMemberValue:
    """The tasks a member of a streams group should run."""

    active_tasks: list[TargetAssignmentMemberTaskIds]
    standby_tasks: list[TargetAssignmentMemberTaskIds]
    warmup_tasks: list[TargetAssignmentMemberTaskIds]


@message(record_type=22, versions=(0, 0))
class StreamsGroupCurrentMemberAssignmentKey:
    """Key of the tasks a member of a streams group runs."""

    group_id: String
    member_id: String


@struct
class CurrentMemberAssignmentTaskIds:
    subtopology_id: String
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(tag=0, default=[])


@message(record_type=22, versions=(0, 0), flexible=0)
class StreamsGroupCurrentMemberAssignmentValue:
    """The tasks a member of a streams group runs, or is giving up."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[CurrentMemberAssignmentTaskIds]
    standby_tasks: list[CurrentMemberAssignmentTaskIds]
    warmup_tasks: list[CurrentMemberAssignmentTaskIds]
    active_tasks_pending_revocation: list[CurrentMemberAssignmentTaskIds]
    standby_tasks_pending_revocation: list[CurrentMemberAssignmentTaskIds]
    warmup_tasks_pending_revocation: list[CurrentMemberAssignmentTaskIds]


@message(record_type=23, versions=(0, 0))
class StreamsGroupTopologyKey:
    """Key of a streams group's topology."""

    group_id: String


@struct
class TopicConfig:
    key: String
    value: String


@struct
class TopicInfo:
    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[TopicConfig]


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


@message(record_type=23, versions=(0, 0), flexible=0)
class StreamsGroupTopologyValue:
    """A streams group's topology: subtopologies and their topics."""

    epoch: Int32
    subtopologies: list[Subtopology]
