"""The ListTransactions API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, Int64, String


@message(api_key=66, versions=(0, 2), flexible=0, listeners=("broker",))
class ListTransactionsRequest:
    """List the transactions a broker coordinates."""

    state_filters: list[String]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field(since=1, default=-1)
    transactional_id_pattern: String | None = field(since=2, default=None)


@struct
class TransactionState:
    transactional_id: String
    producer_id: Int64
    transaction_state: String


@message(api_key=66, versions=(0, 2), flexible=0)
class ListTransactionsResponse:
    """The transactions a broker coordinates, with their state."""

    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: list[String]
    transaction_states: list[TransactionState]
