"""The Produce API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Int16, Int32, Int64, Records, String, Uuid


@struct
class PartitionProduceData:
    index: Int32
    records: Records | None


@struct
class TopicProduceData:
    name: String = field(until=12, default="", ignorable=True)
    # KIP-516: tells a re-created topic from the old.
    topic_id: Uuid = field(since=13, default=NO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData]


@message(api_key=0, versions=(3, 13), flexible=9, listeners=("broker",))
class ProduceRequest:
    """Append record batches to partition logs."""

    transactional_id: String | None = field(default=None)
    acks: Int16  # 0 none, 1 leader, -1 every in-sync replica.
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


@struct
class BatchIndexAndErrorMessage:
    batch_index: Int32
    batch_index_error_message: String | None = field(default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class PartitionProduceResponse:
    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = field(default=-1)
    log_start_offset: Int64 = field(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(since=8, default=[], ignorable=True)
    error_message: String | None = field(since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = field(since=10, tag=0, default=None, nullable=False)


@struct
class TopicProduceResponse:
    name: String = field(until=12, default="", ignorable=True)
    topic_id: Uuid = field(since=13, default=NO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse]


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)


@message(api_key=0, versions=(3, 13), flexible=9)
class ProduceResponse:
    """Where the batches were appended, or why not."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0)
    node_endpoints: list[NodeEndpoint] = field(since=10, tag=0, default=[])
