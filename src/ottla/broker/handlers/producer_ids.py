"""InitProducerId: an id for an idempotent producer."""

from collections.abc import Awaitable

from ottla.broker.dispatch import Call
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.errors import Error, Refused

_NONE = -1


def init_producer_id(
    request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    """Without a transactional id every call gives a new producer id, in epoch 0."""
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return _failed(Error.INVALID_REQUEST)
    if request.transactional_id is None:
        return _new_id(call)
    if not request.transactional_id:
        return _failed(Error.INVALID_REQUEST)
    # Nobody coordinates transactions yet: the client looks for the coordinator again.
    return _failed(Error.NOT_COORDINATOR)


async def _new_id(call: Call) -> InitProducerIdResponse:
    try:
        producer_id = await call.node.metadata.producer_ids.next()
    except Refused as refusal:
        return _failed(refusal.error)
    return InitProducerIdResponse(throttle_time_ms=0, error_code=Error.NONE, producer_id=producer_id, producer_epoch=0)


def _failed(error: Error) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=error, producer_id=_NONE, producer_epoch=_NONE)
