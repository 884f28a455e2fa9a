"""The ReadShareGroupStateSummary API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, Int64, String, Uuid


@struct
class PartitionData:
    partition: Int32
    leader_epoch: Int32


@struct
class ReadStateSummaryData:
    topic_id: Uuid
    partitions: list[PartitionData]


@message(api_key=87, versions=(0, 1), flexible=0, listeners=("broker",))
class ReadShareGroupStateSummaryRequest:
    """Read where share partitions start and how much is delivered, without the ranges."""

    group_id: String
    topics: list[ReadStateSummaryData]


@struct
class PartitionResult:
    partition: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(since=1, default=-1, ignorable=True)


@struct
class ReadStateSummaryResult:
    topic_id: Uuid
    partitions: list[PartitionResult]


@message(api_key=87, versions=(0, 1), flexible=0)
class ReadShareGroupStateSummaryResponse:
    """Start offset and epochs of each share partition."""

    results: list[ReadStateSummaryResult]
