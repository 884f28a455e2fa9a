"""The DeleteShareGroupState API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, String, Uuid


@struct
class PartitionData:
    partition: Int32


@struct
class DeleteStateData:
    topic_id: Uuid
    partitions: list[PartitionData]


@message(api_key=86, versions=(0, 0), flexible=0, listeners=("broker",))
class DeleteShareGroupStateRequest:
    """A group coordinator has the share coordinator delete the state of partitions."""

    group_id: String
    topics: list[DeleteStateData]


@struct
class PartitionResult:
    partition: Int32
    error_code: Int16
    error_message: String | None = field(default=None)


@struct
class DeleteStateResult:
    topic_id: Uuid
    partitions: list[PartitionResult]


@message(api_key=86, versions=(0, 0), flexible=0)
class DeleteShareGroupStateResponse:
    """The outcome per partition whose state was to be deleted."""

    results: list[DeleteStateResult]
