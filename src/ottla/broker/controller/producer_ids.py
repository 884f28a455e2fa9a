"""The producer ids that this broker assigns. They come from a block; when it is used up, the controller allocates the
next one."""

import asyncio
from collections.abc import Callable

from ottla.broker.controller.channel import ControllerChannel
from ottla.core.metadata.producer_ids import ProducerIdBlock
from ottla.wire.api.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.errors import Error, Refused


class ProducerIds:
    def __init__(self, channel: ControllerChannel, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._block = ProducerIdBlock(0, 0)
        self._used = 0
        self._refill: asyncio.Task[None] | None = None

    async def next(self) -> int:
        """A producer id that was never assigned. Raises Refused if the controller allocates no block."""
        while self._used >= self._block.size:
            # One task requests a block for all callers, and goes on if the caller that started it is cancelled.
            if self._refill is None or self._refill.done():
                self._refill = asyncio.create_task(self._take_block())
                self._refill.add_done_callback(_mark_retrieved)
            await asyncio.shield(self._refill)
        self._used += 1
        return self._block.first + self._used - 1

    async def _take_block(self) -> None:
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        response: AllocateProducerIdsResponse = await self._channel.send(request)
        if response.error_code != Error.NONE:
            raise Refused(Error(response.error_code), "the controller gives no producer ids")
        self._block = ProducerIdBlock(response.producer_id_start, response.producer_id_len)
        self._used = 0


def _mark_retrieved(task: "asyncio.Task[None]") -> None:
    """Retrieve the exception: if all callers were cancelled, asyncio would log that it was never retrieved."""
    if not task.cancelled():
        task.exception()
