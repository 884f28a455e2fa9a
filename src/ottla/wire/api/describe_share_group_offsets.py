"""The DescribeShareGroupOffsets API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, Int64, String, Uuid


@struct
class DescribeShareGroupOffsetsRequestTopic:
    topic_name: String
    partitions: list[Int32]


@struct
class DescribeShareGroupOffsetsRequestGroup:
    group_id: String
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


@message(api_key=90, versions=(0, 1), flexible=0, listeners=("broker",))
class DescribeShareGroupOffsetsRequest:
    """Ask how far share groups have come."""

    groups: list[DescribeShareGroupOffsetsRequestGroup]


@struct
class DescribeShareGroupOffsetsResponsePartition:
    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = field(since=1, default=-1, ignorable=True)
    error_code: Int16
    error_message: String | None = field(default=None)


@struct
class DescribeShareGroupOffsetsResponseTopic:
    topic_name: String
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


@struct
class DescribeShareGroupOffsetsResponseGroup:
    group_id: String
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16
    error_message: String | None = field(default=None)


@message(api_key=90, versions=(0, 1), flexible=0)
class DescribeShareGroupOffsetsResponse:
    """Where each share group's partitions start, and how much is left."""

    throttle_time_ms: Int32
    groups: list[DescribeShareGroupOffsetsResponseGroup]
