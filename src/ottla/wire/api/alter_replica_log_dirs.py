"""The AlterReplicaLogDirs API, all versions."""

from ottla.wire.schema import message, struct
from ottla.wire.types import Int16, Int32, String


@struct
class AlterReplicaLogDirTopic:
    name: String
    partitions: list[Int32]


@struct
class AlterReplicaLogDir:
    path: String
    topics: list[AlterReplicaLogDirTopic]


@message(api_key=34, versions=(1, 2), flexible=2, listeners=("broker",))
class AlterReplicaLogDirsRequest:
    """Move a broker's replicas to other log directories."""

    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class AlterReplicaLogDirTopicResult:
    topic_name: String
    partitions: list[AlterReplicaLogDirPartitionResult]


@message(api_key=34, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsResponse:
    """Which moves between directories were accepted."""

    throttle_time_ms: Int32
    results: list[AlterReplicaLogDirTopicResult]
