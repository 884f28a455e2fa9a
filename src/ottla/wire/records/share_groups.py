"""Records of `__consumer_offsets`: share groups."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int32, Int64, String, Uuid


@message(record_type=10, versions=(0, 0))
class ShareGroupMemberMetadataKey:
    """Key of the metadata of a member of a share group."""

    group_id: String
    member_id: String


@message(record_type=10, versions=(0, 0), flexible=0)
class ShareGroupMemberMetadataValue:
    """The metadata of a member of a share group: its client, its rack, and its subscriptions."""

    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]


@message(record_type=11, versions=(0, 0))
class ShareGroupMetadataKey:
    """Key of a share group's epoch."""

    group_id: String


@message(record_type=11, versions=(0, 0), flexible=0)
class ShareGroupMetadataValue:
    """A share group's epoch."""

    epoch: Int32
    metadata_hash: Int64


@message(record_type=12, versions=(0, 0))
class ShareGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a share group's target assignment."""

    group_id: String


@message(record_type=12, versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMetadataValue:
    """The epoch of a share group's target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


@message(record_type=13, versions=(0, 0))
class ShareGroupTargetAssignmentMemberKey:
    """Key of the partitions a member of a share group should read."""

    group_id: String
    member_id: String


@struct
class TopicPartition:
    topic_id: Uuid
    partitions: list[Int32]


@message(record_type=13, versions=(0, 0), flexible=0)
class ShareGroupTargetAssignmentMemberValue:
    """The partitions a member of a share group should read."""

    topic_partitions: list[TopicPartition]


@message(record_type=14, versions=(0, 0))
class ShareGroupCurrentMemberAssignmentKey:
    """Key of the partitions a member of a share group reads."""

    group_id: String
    member_id: String


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@message(record_type=14, versions=(0, 0), flexible=0)
class ShareGroupCurrentMemberAssignmentValue:
    """The partitions a member of a share group reads."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


@message(record_type=15, versions=(0, 0))
class ShareGroupStatePartitionMetadataKey:
    """Key of the partitions for which a share group has state."""

    group_id: String


@struct
class TopicPartitionsInfo:
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


@struct
class TopicInfo:
    topic_id: Uuid
    topic_name: String


@message(record_type=15, versions=(0, 0), flexible=0)
class ShareGroupStatePartitionMetadataValue:
    """The partitions whose share state is being initialized, is initialized, or is being deleted."""

    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
