"""The AlterPartitionReassignments API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int16, Int32, String


@struct
class ReassignablePartition:
    partition_index: Int32
    replicas: list[Int32] | None = field(default=None)


@struct
class ReassignableTopic:
    name: String
    partitions: list[ReassignablePartition]


@message(api_key=45, versions=(0, 1), flexible=0, listeners=("broker", "controller"))
class AlterPartitionReassignmentsRequest:
    """Move partitions to other brokers, or cancel such moves."""

    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: Bool = field(since=1, default=True)
    topics: list[ReassignableTopic]


@struct
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: String | None


@struct
class ReassignableTopicResponse:
    name: String
    partitions: list[ReassignablePartitionResponse]


@message(api_key=45, versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse:
    """Which moves were accepted."""

    throttle_time_ms: Int32
    allow_replication_factor_change: Bool = field(since=1, default=True, ignorable=True)
    error_code: Int16
    error_message: String | None
    responses: list[ReassignableTopicResponse]
