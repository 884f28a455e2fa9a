"""The DescribeTopicPartitions API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int16, Int32, String, Uuid


@struct
class TopicRequest:
    name: String


@struct
class Cursor:
    topic_name: String
    partition_index: Int32


@message(api_key=75, versions=(0, 0), flexible=0, listeners=("broker",))
class DescribeTopicPartitionsRequest:
    """Ask for the partitions of topics, page by page."""

    topics: list[TopicRequest]
    response_partition_limit: Int32 = field(default=2000)
    cursor: Cursor | None = field(default=None)  # Null: from the beginning.


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = field(default=None)
    last_known_elr: list[Int32] | None = field(default=None)
    offline_replicas: list[Int32]


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: Int16
    name: String | None
    topic_id: Uuid
    is_internal: Bool = field(default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = field(default=-(2**31))


@message(api_key=75, versions=(0, 0), flexible=0)
class DescribeTopicPartitionsResponse:
    """One page of partitions, and where the next begins."""

    throttle_time_ms: Int32
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = field(default=None)
