"""The ReadShareGroupState API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int16, Int32, Int64, String, Uuid


@struct
class PartitionData:
    partition: Int32
    leader_epoch: Int32


@struct
class ReadStateData:
    topic_id: Uuid
    partitions: list[PartitionData]


@message(api_key=84, versions=(0, 0), flexible=0, listeners=("broker",))
class ReadShareGroupStateRequest:
    """A share-partition leader reads the delivery state of partitions."""

    group_id: String
    topics: list[ReadStateData]


@struct
class StateBatch:
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@struct
class PartitionResult:
    partition: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    state_epoch: Int32
    start_offset: Int64
    state_batches: list[StateBatch]


@struct
class ReadStateResult:
    topic_id: Uuid
    partitions: list[PartitionResult]


@message(api_key=84, versions=(0, 0), flexible=0)
class ReadShareGroupStateResponse:
    """The delivery state of each partition, by ranges of offsets."""

    results: list[ReadStateResult]
