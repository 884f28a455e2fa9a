"""The DeleteRecords API, all versions."""

from ottla.wire.schema import message, struct
from ottla.wire.types import Int16, Int32, Int64, String


@struct
class DeleteRecordsPartition:
    partition_index: Int32
    offset: Int64  # -1: the high watermark.


@struct
class DeleteRecordsTopic:
    name: String
    partitions: list[DeleteRecordsPartition]


@message(api_key=21, versions=(0, 2), flexible=2, listeners=("broker",))
class DeleteRecordsRequest:
    """Move the start of partitions' logs forward."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult:
    partition_index: Int32
    low_watermark: Int64
    error_code: Int16


@struct
class DeleteRecordsTopicResult:
    name: String
    partitions: list[DeleteRecordsPartitionResult]


@message(api_key=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse:
    """Where each partition's log starts now."""

    throttle_time_ms: Int32
    topics: list[DeleteRecordsTopicResult]
