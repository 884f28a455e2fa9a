"""Records of `__consumer_offsets`: consumer groups."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bytes, Int8, Int32, Int64, String, Uuid


@message(record_type=3, versions=(0, 0))
class ConsumerGroupMetadataKey:
    """Key of a consumer group's epoch."""

    group_id: String


@message(record_type=3, versions=(0, 0), flexible=0)
class ConsumerGroupMetadataValue:
    """A consumer group's epoch."""

    epoch: Int32
    metadata_hash: Int64 = field(tag=0, default=0)


@message(record_type=4, versions=(0, 0))
class ConsumerGroupPartitionMetadataKey:
    """Key of the partition counts a consumer group has seen; no longer written."""

    group_id: String


@struct
class PartitionMetadata:
    partition: Int32
    racks: list[String]


@struct
class TopicMetadata:
    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


@message(record_type=4, versions=(0, 0), flexible=0)
class ConsumerGroupPartitionMetadataValue:
    """The partition counts a consumer group has seen; no longer written."""

    topics: list[TopicMetadata]


@message(record_type=5, versions=(0, 0))
class ConsumerGroupMemberMetadataKey:
    """Key of the metadata of a member of a consumer group."""

    group_id: String
    member_id: String


@struct
class ClassicProtocol:
    name: String
    metadata: Bytes


@struct
class ClassicMemberMetadata:
    session_timeout_ms: Int32
    supported_protocols: list[ClassicProtocol]


@message(record_type=5, versions=(0, 0), flexible=0)
class ConsumerGroupMemberMetadataValue:
    """The metadata of a member of a consumer group: its client, its rack, and its subscriptions."""

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0)


@message(record_type=6, versions=(0, 0))
class ConsumerGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a consumer group's target assignment."""

    group_id: String


@message(record_type=6, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of a consumer group's target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


@message(record_type=7, versions=(0, 0))
class ConsumerGroupTargetAssignmentMemberKey:
    """Key of the partitions a member of a consumer group should own."""

    group_id: String
    member_id: String


@struct
class TopicPartition:
    topic_id: Uuid
    partitions: list[Int32]


@message(record_type=7, versions=(0, 0), flexible=0)
class ConsumerGroupTargetAssignmentMemberValue:
    """The partitions a member of a consumer group should own."""

    topic_partitions: list[TopicPartition]


@message(record_type=8, versions=(0, 0))
class ConsumerGroupCurrentMemberAssignmentKey:
    """Key of the partitions a member of a consumer group owns."""

    group_id: String
    member_id: String


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(tag=0, default=[])


@message(record_type=8, versions=(0, 0), flexible=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    """The partitions a member of a consumer group owns, or is giving up."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


@message(record_type=16, versions=(0, 0))
class ConsumerGroupRegularExpressionKey:
    """Key of a regular expression to which members of a consumer group subscribed."""

    group_id: String
    regular_expression: String


@message(record_type=16, versions=(0, 0), flexible=0)
class ConsumerGroupRegularExpressionValue:
    """The topics that a regular expression matched."""

    topics: list[String]
    version: Int64
    timestamp: Int64
