"""The ListPartitionReassignments API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, String


@struct
class ListPartitionReassignmentsTopics:
    name: String
    partition_indexes: list[Int32]


@message(api_key=46, versions=(0, 0), flexible=0, listeners=("broker", "controller"))
class ListPartitionReassignmentsRequest:
    """List the partitions that are being moved."""

    timeout_ms: Int32 = field(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(default=None)


@struct
class OngoingPartitionReassignment:
    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


@struct
class OngoingTopicReassignment:
    name: String
    partitions: list[OngoingPartitionReassignment]


@message(api_key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse:
    """The partitions that are being moved, with old and new replicas."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    topics: list[OngoingTopicReassignment]
