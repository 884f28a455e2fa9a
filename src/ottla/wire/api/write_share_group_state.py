"""The WriteShareGroupState API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int16, Int32, Int64, String, Uuid


@struct
class StateBatch:
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@struct
class PartitionData:
    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(since=1, default=-1, ignorable=True)
    state_batches: list[StateBatch]


@struct
class WriteStateData:
    topic_id: Uuid
    partitions: list[PartitionData]


@message(api_key=85, versions=(0, 1), flexible=0, listeners=("broker",))
class WriteShareGroupStateRequest:
    """A share-partition leader stores the delivery state of partitions."""

    group_id: String
    topics: list[WriteStateData]


@struct
class PartitionResult:
    partition: Int32
    error_code: Int16
    error_message: String | None = field(default=None)


@struct
class WriteStateResult:
    topic_id: Uuid
    partitions: list[PartitionResult]


@message(api_key=85, versions=(0, 1), flexible=0)
class WriteShareGroupStateResponse:
    """The outcome per partition."""

    results: list[WriteStateResult]
