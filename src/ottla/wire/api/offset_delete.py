"""The OffsetDelete API, all versions."""

from ottla.wire.schema import message, struct
from ottla.wire.types import Int16, Int32, String


@struct
class OffsetDeleteRequestPartition:
    partition_index: Int32


@struct
class OffsetDeleteRequestTopic:
    name: String
    partitions: list[OffsetDeleteRequestPartition]


@message(api_key=47, versions=(0, 0), listeners=("broker",))
class OffsetDeleteRequest:
    """Delete a group's offsets for partitions it no longer reads."""

    group_id: String
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition:
    partition_index: Int32
    error_code: Int16


@struct
class OffsetDeleteResponseTopic:
    name: String
    partitions: list[OffsetDeleteResponsePartition]


@message(api_key=47, versions=(0, 0))
class OffsetDeleteResponse:
    """The outcome per partition."""

    error_code: Int16
    throttle_time_ms: Int32
    topics: list[OffsetDeleteResponseTopic]
