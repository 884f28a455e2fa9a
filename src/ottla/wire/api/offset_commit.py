"""The OffsetCommit API, all versions."""

from collections.abc import Sequence

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Int16, Int32, Int64, String, Uuid


@struct
class OffsetCommitRequestPartition:
    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(since=6, default=-1, ignorable=True)
    committed_metadata: String | None


@struct
class OffsetCommitRequestTopic:
    name: String = field(until=9, default="", ignorable=True)
    topic_id: Uuid = field(since=10, default=NO_UUID, ignorable=True)
    partitions: Sequence[OffsetCommitRequestPartition]


@message(api_key=8, versions=(2, 10), flexible=8, listeners=("broker",))
class OffsetCommitRequest:
    """Store how far a group has read."""

    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1)
    member_id: String
    group_instance_id: String | None = field(since=7, default=None)
    retention_time_ms: Int64 = field(until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetCommitResponseTopic:
    name: String = field(until=9, default="", ignorable=True)
    topic_id: Uuid = field(since=10, default=NO_UUID, ignorable=True)
    partitions: Sequence[OffsetCommitResponsePartition]


@message(api_key=8, versions=(2, 10), flexible=8)
class OffsetCommitResponse:
    """The outcome per partition."""

    throttle_time_ms: Int32 = field(since=3, default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]
