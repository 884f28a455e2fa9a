"""Producer ids of this broker: handed out from a block; a new block is asked for when it is used up."""

import asyncio
from typing import TYPE_CHECKING

from ottla.core.metadata.producer_ids import ProducerIdBlock, allocate

if TYPE_CHECKING:
    from ottla.broker.quorum import MetadataQuorum


class ProducerIds:
    def __init__(self, quorum: "MetadataQuorum") -> None:
        self._quorum = quorum
        self._block = ProducerIdBlock(0, 0)
        self._used = 0
        self._refill: asyncio.Task[None] | None = None

    async def next(self) -> int:
        while self._used >= self._block.size:
            # One asks for all who wait, and goes on when the one whose request began it is gone.
            if self._refill is None or self._refill.done():
                self._refill = asyncio.create_task(self._take_block())
                self._refill.add_done_callback(_seen)
            await asyncio.shield(self._refill)
        self._used += 1
        return self._block.first + self._used - 1

    async def _take_block(self) -> None:
        node_id = self._quorum.node_id
        broker = self._quorum.image.brokers.get(node_id)
        epoch = broker.epoch if broker is not None else -1
        self._block = await self._quorum.propose(lambda image: allocate(image, node_id, epoch))
        self._used = 0


def _seen(task: "asyncio.Task[None]") -> None:
    """Those who asked may be gone by now: then nobody else looks at what went wrong."""
    if not task.cancelled():
        task.exception()
