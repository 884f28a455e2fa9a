"""The DescribeLogDirs API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int16, Int32, Int64, String


@struct
class DescribableLogDirTopic:
    topic: String
    partitions: list[Int32]


@message(api_key=35, versions=(1, 5), flexible=2, listeners=("broker",))
class DescribeLogDirsRequest:
    """Ask for a broker's log directories and the replicas in them."""

    topics: list[DescribableLogDirTopic] | None


@struct
class DescribeLogDirsPartition:
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@struct
class DescribeLogDirsTopic:
    name: String
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    error_code: Int16
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = field(since=4, default=-1, ignorable=True)
    usable_bytes: Int64 = field(since=4, default=-1, ignorable=True)
    is_cordoned: Bool = field(since=5, default=False, ignorable=True)


@message(api_key=35, versions=(1, 5), flexible=2)
class DescribeLogDirsResponse:
    """A broker's log directories: space, replicas, and what is offline."""

    throttle_time_ms: Int32
    error_code: Int16 = field(since=3, default=0, ignorable=True)
    results: list[DescribeLogDirsResult]
