"""The OffsetFetch API, all versions."""

from collections.abc import Sequence

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Bool, Int16, Int32, Int64, String, Uuid


@struct
class OffsetFetchRequestTopic:
    name: String
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestTopics:
    name: String = field(until=9, default="", ignorable=True)
    topic_id: Uuid = field(since=10, default=NO_UUID, ignorable=True)
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestGroup:
    group_id: String
    member_id: String | None = field(since=9, default=None, ignorable=True)
    member_epoch: Int32 = field(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None  # Null: all of them.


@message(api_key=9, versions=(1, 10), flexible=6, listeners=("broker",))
class OffsetFetchRequest:
    """Read how far groups have come."""

    group_id: String = field(until=7, default="")
    topics: list[OffsetFetchRequestTopic] | None = field(until=7, nullable_since=2, default=[])
    groups: list[OffsetFetchRequestGroup] = field(since=8, default=[])
    require_stable: Bool = field(since=7, default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(since=5, default=-1, ignorable=True)
    metadata: String | None
    error_code: Int16


@struct
class OffsetFetchResponseTopic:
    name: String
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponsePartitions:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1)
    metadata: String | None
    error_code: Int16


@struct
class OffsetFetchResponseTopics:
    name: String = field(until=9, default="", ignorable=True)
    topic_id: Uuid = field(since=10, default=NO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions]


@struct
class OffsetFetchResponseGroup:
    group_id: String
    topics: Sequence[OffsetFetchResponseTopics]
    error_code: Int16 = field(default=0)


@message(api_key=9, versions=(1, 10), flexible=6)
class OffsetFetchResponse:
    """The committed offsets."""

    throttle_time_ms: Int32 = field(since=3, default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(until=7, default=[])
    error_code: Int16 = field(since=2, until=7, default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(since=8, default=[])
