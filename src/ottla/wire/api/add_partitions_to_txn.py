"""The AddPartitionsToTxn API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int16, Int32, Int64, String


@struct
class AddPartitionsToTxnTopic:
    name: String
    partitions: list[Int32]


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = field(default=False)  # Ask whether they are enlisted, without enlisting them (KIP-890).
    topics: list[AddPartitionsToTxnTopic]


@message(api_key=24, versions=(0, 5), flexible=3, listeners=("broker",))
class AddPartitionsToTxnRequest:
    """Enlist partitions in transactions before anything is written to them."""

    transactions: list[AddPartitionsToTxnTransaction] = field(since=4, default=[])
    v3_and_below_transactional_id: String = field(until=3, default="")
    v3_and_below_producer_id: Int64 = field(until=3, default=0)
    v3_and_below_producer_epoch: Int16 = field(until=3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(until=3, default=[])


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16


@struct
class AddPartitionsToTxnTopicResult:
    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    transactional_id: String
    topic_results: list[AddPartitionsToTxnTopicResult]


@message(api_key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse:
    """Which partitions were enlisted in which transaction."""

    throttle_time_ms: Int32
    error_code: Int16 = field(since=4, default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(since=4, default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(until=3, default=[])
