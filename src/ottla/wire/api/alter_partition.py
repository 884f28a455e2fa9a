"""The AlterPartition API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int16, Int32, Int64, Uuid


@struct
class BrokerState:
    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


@struct
class RequestPartitionData:
    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = field(until=2, default=[])
    new_isr_with_epochs: list[BrokerState] = field(since=3, default=[])
    leader_recovery_state: Int8 = field(default=0)
    partition_epoch: Int32


@struct
class RequestTopicData:
    topic_id: Uuid
    partitions: list[RequestPartitionData]


@message(api_key=56, versions=(2, 3), flexible=0, listeners=("controller",))
class AlterPartitionRequest:
    """A partition's leader proposes a new in-sync set to the controller."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    topics: list[RequestTopicData]


@struct
class ResponsePartitionData:
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8 = field(default=0)
    partition_epoch: Int32


@struct
class ResponseTopicData:
    topic_id: Uuid
    partitions: list[ResponsePartitionData]


@message(api_key=56, versions=(2, 3), flexible=0)
class AlterPartitionResponse:
    """The state of each partition as the controller now has it."""

    throttle_time_ms: Int32
    error_code: Int16
    topics: list[ResponseTopicData]
