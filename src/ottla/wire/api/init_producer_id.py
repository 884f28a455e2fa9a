"""The InitProducerId API, all versions."""

from ottla.wire.schema import field, message
from ottla.wire.types import Bool, Int16, Int32, Int64, String


@message(api_key=22, versions=(0, 6), flexible=2, listeners=("broker",), unstable=True)
class InitProducerIdRequest:
    """Obtain a producer id and epoch; for a transactional id, fence its former producer."""

    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field(since=3, default=-1)  # -1, or the one to go on with (KIP-360).
    producer_epoch: Int16 = field(since=3, default=-1)
    enable2_pc: Bool = field(since=6, default=False)
    keep_prepared_txn: Bool = field(since=6, default=False)


@message(api_key=22, versions=(0, 6), flexible=2)
class InitProducerIdResponse:
    """The producer's id and epoch."""

    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field(default=-1)
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field(since=6, default=-1)
    ongoing_txn_producer_epoch: Int16 = field(since=6, default=-1)
