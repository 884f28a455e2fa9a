"""The ListOffsets API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int16, Int32, Int64, String


@struct
class ListOffsetsPartition:
    partition_index: Int32
    current_leader_epoch: Int32 = field(since=4, default=-1, ignorable=True)
    # -1 latest, -2 earliest, -3 largest timestamp, -4 earliest local, -5 latest tiered, -6 earliest not yet tiered.
    timestamp: Int64


@struct
class ListOffsetsTopic:
    name: String
    partitions: list[ListOffsetsPartition]


@message(api_key=2, versions=(1, 11), flexible=6, listeners=("broker",))
class ListOffsetsRequest:
    """Look up offsets by time, or the first and last ones."""

    replica_id: Int32
    isolation_level: Int8 = field(since=2, default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field(since=10, default=0, ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = field(since=4, default=-1)


@struct
class ListOffsetsTopicResponse:
    name: String
    partitions: list[ListOffsetsPartitionResponse]


@message(api_key=2, versions=(1, 11), flexible=6)
class ListOffsetsResponse:
    """The offset found per partition."""

    throttle_time_ms: Int32 = field(since=2, default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]
