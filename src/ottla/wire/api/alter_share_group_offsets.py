"""The AlterShareGroupOffsets API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, Int64, String, Uuid


@struct
class AlterShareGroupOffsetsRequestPartition:
    partition_index: Int32
    start_offset: Int64


@struct
class AlterShareGroupOffsetsRequestTopic:
    topic_name: String
    partitions: list[AlterShareGroupOffsetsRequestPartition]


@message(api_key=91, versions=(0, 0), flexible=0, listeners=("broker",))
class AlterShareGroupOffsetsRequest:
    """Set where an empty share group goes on reading."""

    group_id: String
    topics: list[AlterShareGroupOffsetsRequestTopic]


@struct
class AlterShareGroupOffsetsResponsePartition:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default=None)


@struct
class AlterShareGroupOffsetsResponseTopic:
    topic_name: String
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


@message(api_key=91, versions=(0, 0), flexible=0)
class AlterShareGroupOffsetsResponse:
    """The outcome per partition whose start offset was set."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic]
