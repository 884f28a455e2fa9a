"""The TxnOffsetCommit API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, Int64, String


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(since=2, default=-1, ignorable=True)
    committed_metadata: String | None


@struct
class TxnOffsetCommitRequestTopic:
    name: String
    partitions: list[TxnOffsetCommitRequestPartition]


@message(api_key=28, versions=(0, 5), flexible=3, listeners=("broker",))
class TxnOffsetCommitRequest:
    """Store a group's offsets as part of a transaction."""

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = field(since=3, default=-1)
    member_id: String = field(since=3, default="")
    group_instance_id: String | None = field(since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class TxnOffsetCommitResponseTopic:
    name: String
    partitions: list[TxnOffsetCommitResponsePartition]


@message(api_key=28, versions=(0, 5), flexible=3)
class TxnOffsetCommitResponse:
    """The outcome per partition."""

    throttle_time_ms: Int32
    topics: list[TxnOffsetCommitResponseTopic]
