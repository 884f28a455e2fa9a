"""The Metadata API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Bool, Int16, Int32, String, Uuid


@struct
class MetadataRequestTopic:
    topic_id: Uuid = field(since=10, default=NO_UUID, ignorable=True)
    name: String | None = field(nullable_since=10)


@message(api_key=3, versions=(0, 13), flexible=9, listeners=("broker",))
class MetadataRequest:
    """Ask for brokers, topics, partitions and their leaders."""

    # Null: all of them. In version 0 an empty list means all.
    topics: list[MetadataRequestTopic] | None = field(nullable_since=1)
    allow_auto_topic_creation: Bool = field(since=4, default=True)
    include_cluster_authorized_operations: Bool = field(since=8, until=10, default=False)
    include_topic_authorized_operations: Bool = field(since=8, default=False)


@struct
class MetadataResponseBroker:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(since=1, default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(since=7, default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field(since=5, default=[], ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: Int16
    name: String | None = field(nullable_since=12)
    topic_id: Uuid = field(since=10, default=NO_UUID, ignorable=True)
    is_internal: Bool = field(since=1, default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field(since=8, default=-(2**31))


@message(api_key=3, versions=(0, 13), flexible=9)
class MetadataResponse:
    """Brokers, topics, partitions and their leaders."""

    throttle_time_ms: Int32 = field(since=3, default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = field(since=2, default=None, ignorable=True)
    controller_id: Int32 = field(since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field(since=8, until=10, default=-(2**31))
    error_code: Int16 = field(since=13, default=0, ignorable=True)
