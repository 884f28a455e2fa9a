"""The DescribeTransactions API, all versions."""

from collections.abc import Sequence

from ottla.wire.schema import message, struct
from ottla.wire.types import Int16, Int32, Int64, String


@message(api_key=65, versions=(0, 0), flexible=0, listeners=("broker",))
class DescribeTransactionsRequest:
    """Ask for the state of transactions."""

    transactional_ids: list[String]


@struct
class TopicData:
    topic: String
    partitions: list[Int32]


@struct
class TransactionState:
    error_code: Int16
    transactional_id: String
    transaction_state: String
    transaction_timeout_ms: Int32
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: Sequence[TopicData]


@message(api_key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsResponse:
    """The state of each transaction and the partitions in it."""

    throttle_time_ms: Int32
    transaction_states: list[TransactionState]
