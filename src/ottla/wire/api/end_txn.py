"""The EndTxn API, all versions."""

from ottla.wire.schema import field, message
from ottla.wire.types import Bool, Int16, Int32, Int64, String


@message(api_key=26, versions=(0, 5), flexible=3, listeners=("broker",))
class EndTxnRequest:
    """Commit or abort a transaction."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool  # False aborts.


@message(api_key=26, versions=(0, 5), flexible=3)
class EndTxnResponse:
    """Whether the transaction is being ended, and the producer's new id and epoch."""

    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field(since=5, default=-1, ignorable=True)
    producer_epoch: Int16 = field(since=5, default=-1, ignorable=True)
