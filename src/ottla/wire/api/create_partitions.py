"""The CreatePartitions API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int16, Int32, String


@struct
class CreatePartitionsAssignment:
    broker_ids: list[Int32]


@struct
class CreatePartitionsTopic:
    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None


@message(api_key=37, versions=(0, 3), flexible=2, listeners=("broker", "controller"))
class CreatePartitionsRequest:
    """Give topics more partitions."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool  # Check, but change nothing.


@struct
class CreatePartitionsTopicResult:
    name: String
    error_code: Int16
    error_message: String | None = field(default=None)


@message(api_key=37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse:
    """The outcome per topic."""

    throttle_time_ms: Int32
    results: list[CreatePartitionsTopicResult]
