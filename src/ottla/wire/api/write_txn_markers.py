"""The WriteTxnMarkers API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int8, Int16, Int32, Int64, String


@struct
class WritableTxnMarkerTopic:
    name: String
    partition_indexes: list[Int32]


@struct
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool  # True commits.
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = field(since=2, default=0, ignorable=True)


@message(api_key=27, versions=(1, 2), flexible=1, listeners=("broker",))
class WriteTxnMarkersRequest:
    """A transaction coordinator has commit or abort markers written to partitions."""

    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@struct
class WritableTxnMarkerTopicResult:
    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@message(api_key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse:
    """The outcome per producer and partition."""

    markers: list[WritableTxnMarkerResult]
