"""The committed metadata on every node, and the listeners that act on its changes.

Rule 1: `image` holds only committed metadata. It is built by `Image.replay` alone.
Rule 2: every change of the image is a `MetadataDelta`: committed records of the log, or a snapshot that is loaded.
Rule 3: listeners are called with deltas in the order of the log, after the image has them. A listener with much work
        lets other tasks run in between. Records that are committed meanwhile wait until it is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, NamedTuple

from ottla.core.metadata.image import Image
from ottla.core.metadata.records import MetadataRecord

_RECORDS_PER_DELTA: Final = 2_000
"""A delta holds about this many records: listeners may sync files per delta, so small decisions are published
together."""


class MetadataDelta(NamedTuple):
    """Consecutive metadata records that were replayed into the image together."""

    records: Sequence[MetadataRecord]


MetadataListener = Callable[[MetadataDelta, Image], Awaitable[None]]


class MetadataPublisher:
    def __init__(self) -> None:
        self.image = Image()
        self.end_offset = 0
        """The offset after the last record that was published to the listeners."""
        self.listeners: list[MetadataListener] = []

    def load(self, delta: MetadataDelta) -> None:
        """Replay a snapshot, or a part of the log, that is read before any listener exists."""
        for record in delta.records:
            self.image.replay(record)

    async def publish(self, decisions: Iterator[Sequence[MetadataRecord]], end_offset: int) -> None:
        """Replay committed decisions and call the listeners. A delta holds whole decisions."""
        while delta := await self._replay_some(decisions):
            for listener in self.listeners:
                await listener(delta, self.image)
        self.end_offset = end_offset

    async def _replay_some(self, decisions: Iterator[Sequence[MetadataRecord]]) -> MetadataDelta | None:
        records: list[MetadataRecord] = []
        for decision in decisions:
            if records:
                await asyncio.sleep(0)
            for record in decision:
                self.image.replay(record)
            records += decision
            if len(records) >= _RECORDS_PER_DELTA:
                break
        return MetadataDelta(records) if records else None
