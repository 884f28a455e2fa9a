"""The InitializeShareGroupState API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, Int64, String, Uuid


@struct
class PartitionData:
    partition: Int32
    state_epoch: Int32
    start_offset: Int64


@struct
class InitializeStateData:
    topic_id: Uuid
    partitions: list[PartitionData]


@message(api_key=83, versions=(0, 0), flexible=0, listeners=("broker",))
class InitializeShareGroupStateRequest:
    """A group coordinator has the share coordinator set up the state of partitions."""

    group_id: String
    topics: list[InitializeStateData]


@struct
class PartitionResult:
    partition: Int32
    error_code: Int16
    error_message: String | None = field(default=None)


@struct
class InitializeStateResult:
    topic_id: Uuid
    partitions: list[PartitionResult]


@message(api_key=83, versions=(0, 0), flexible=0)
class InitializeShareGroupStateResponse:
    """The outcome per partition whose state was set up."""

    results: list[InitializeStateResult]
