"""The AssignReplicasToDirs API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, Int64, Uuid


@struct
class RequestPartitionData:
    partition_index: Int32


@struct
class RequestTopicData:
    topic_id: Uuid
    partitions: list[RequestPartitionData]


@struct
class RequestDirectoryData:
    id: Uuid
    topics: list[RequestTopicData]


@message(api_key=73, versions=(0, 0), flexible=0, listeners=("controller",))
class AssignReplicasToDirsRequest:
    """A broker tells the controller in which log directories its replicas lie."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    directories: list[RequestDirectoryData]


@struct
class ResponsePartitionData:
    partition_index: Int32
    error_code: Int16


@struct
class ResponseTopicData:
    topic_id: Uuid
    partitions: list[ResponsePartitionData]


@struct
class ResponseDirectoryData:
    id: Uuid
    topics: list[ResponseTopicData]


@message(api_key=73, versions=(0, 0), flexible=0)
class AssignReplicasToDirsResponse:
    """Which of the reported places the controller noted."""

    throttle_time_ms: Int32
    error_code: Int16
    directories: list[ResponseDirectoryData]
