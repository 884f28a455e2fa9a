"""Fetches that wait for more bytes.

Rule 1: a waiter is woken when enough bytes were appended to the partitions it waits for, when its time is up, or when
        something happened that it must see at once (`wake`). It looks for itself what there is then.
Rule 2: a waiter is woken once, and is nowhere to be found afterwards.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol


class Watcher(Protocol):
    """Someone who wants to know what becomes of a partition."""

    def grown(self, size: int, /) -> None:
        """So many more bytes are committed."""

    def wake(self) -> None:
        """The partition has changed, or goes away."""


class Watched(Protocol):
    """Something that grows and has waiters: an ordered set, so that the order of waking does not depend on hashes."""

    waiters: dict[Watcher, None]


class Waiter:
    __slots__ = ("_future", "_timer", "_watched", "missing_bytes")

    def __init__(self, watched: Iterable[Watched], missing_bytes: int, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self.missing_bytes = missing_bytes
        self._watched = list(watched)
        self._future: asyncio.Future[None] = loop.create_future()
        self._timer = loop.call_later(wait_ms / 1000, self.wake)
        for one in self._watched:
            one.waiters[self] = None

    def grown(self, size: int) -> None:
        self.missing_bytes -= size
        if self.missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        self._timer.cancel()
        for one in self._watched:
            one.waiters.pop(self, None)
        if not self._future.done():
            self._future.set_result(None)

    async def woken(self) -> None:
        try:
            await self._future
        finally:
            self.wake()  # Also when the connection is gone.
