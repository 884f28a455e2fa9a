"""InitProducerId: the identity of an idempotent or transactional producer."""

from collections.abc import Awaitable

from ottla.broker.network.dispatch import Call
from ottla.core.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, ProducerIdentity
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.errors import Error, Refused

_FENCED_SINCE = 4


def init_producer_id(
    request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    """Assign a producer id and epoch. Without a transactional id every request gets a new id, in epoch 0."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        return _failed(Error.INVALID_REQUEST)
    transactional_id = request.transactional_id
    if transactional_id is None:
        return _new_id(call)
    if not transactional_id:
        return _failed(Error.INVALID_REQUEST)
    if request.enable2_pc:
        return _failed(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)  # As in Kafka without two-phase commit.
    if request.keep_prepared_txn:
        return _failed(Error.UNSUPPORTED_VERSION)
    return _of_transactional_id(transactional_id, request, call)


async def _new_id(call: Call) -> InitProducerIdResponse:
    try:
        producer_id = await call.node.producer_ids.next()
    except Refused as refusal:
        return _failed(refusal.error)
    return _is(ProducerIdentity(producer_id, 0))


async def _of_transactional_id(
    transactional_id: str, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse:
    has_identity = request.producer_id != NO_PRODUCER_ID
    expected = ProducerIdentity(request.producer_id, request.producer_epoch) if has_identity else None
    try:
        producer = await call.node.transactions.decide(
            transactional_id,
            lambda shard, now_ms: shard.init_producer_id(
                transactional_id, request.transaction_timeout_ms, expected, now_ms
            ),
        )
    except Refused as refusal:
        if refusal.error is Error.PRODUCER_FENCED and call.version < _FENCED_SINCE:
            return _failed(Error.INVALID_PRODUCER_EPOCH)
        return _failed(refusal.error)
    # The open transaction of the producer is being aborted: the client retries until that is done.
    return _failed(Error.CONCURRENT_TRANSACTIONS) if producer is None else _is(producer)


def _is(producer: ProducerIdentity) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=Error.NONE, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )


def _failed(error: Error) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
    )
