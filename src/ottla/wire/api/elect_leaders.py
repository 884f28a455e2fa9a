"""The ElectLeaders API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int16, Int32, String


@struct
class TopicPartitions:
    topic: String
    partitions: list[Int32]


@message(api_key=43, versions=(0, 2), flexible=2, listeners=("broker", "controller"))
class ElectLeadersRequest:
    """Elect leaders of partitions: the preferred ones, or any that is alive."""

    election_type: Int8 = field(since=1, default=0)  # 0 preferred, 1 unclean.
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = field(default=60000)


@struct
class PartitionResult:
    partition_id: Int32
    error_code: Int16
    error_message: String | None


@struct
class ReplicaElectionResult:
    topic: String
    partition_result: list[PartitionResult]


@message(api_key=43, versions=(0, 2), flexible=2)
class ElectLeadersResponse:
    """The outcome per partition."""

    throttle_time_ms: Int32
    error_code: Int16 = field(since=1, default=0)
    replica_election_results: list[ReplicaElectionResult]
