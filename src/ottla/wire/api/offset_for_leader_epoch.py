"""The OffsetForLeaderEpoch API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, Int64, String


@struct
class OffsetForLeaderPartition:
    partition: Int32
    current_leader_epoch: Int32 = field(default=-1)
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic:
    topic: String
    partitions: list[OffsetForLeaderPartition]


@message(api_key=23, versions=(2, 4), flexible=4, listeners=("broker",))
class OffsetForLeaderEpochRequest:
    """Ask where a leader epoch ended in partitions' logs."""

    replica_id: Int32 = field(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset:
    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: String
    partitions: list[EpochEndOffset]


@message(api_key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse:
    """Where each epoch ended, so that diverging logs can be cut at the right place."""

    throttle_time_ms: Int32
    topics: list[OffsetForLeaderTopicResult]
