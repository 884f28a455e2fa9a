"""Fetches that wait for more bytes.

Rule 1: a waiter is woken when enough bytes were appended to the partitions it waits for, when its time is up, or when
        something happened that it must see at once (`wake`). It looks for itself what there is then.
Rule 2: a waiter is woken once, and is nowhere to be found afterwards.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Watcher(Protocol):
    """Someone who wants to know what becomes of a partition."""

    def grown(self, size: int, /) -> None:
        """So many more bytes are committed."""

    def wake(self) -> None:
        """The partition has changed, or goes away."""


class Watched(Protocol):
    """Something that grows and has waiters: an ordered set, so that the order of waking does not depend on hashes."""

    waiters: dict[Watcher, None]


class Waiter(asyncio.Future[Callable[[], Any]]):
    """Its result is `look`, for whoever waits to call: looking is not the business of the one who wakes.

    It is a future and not a task, since most fetches of a reader at the end of its log wait.
    """

    def __init__(
        self,
        watched: Iterable[Watched],
        missing_bytes: int,
        wait_ms: int,
        look: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(loop=loop)
        self.missing_bytes = missing_bytes
        self._look = look
        self._watched = list(watched)
        self._timer = loop.call_later(wait_ms / 1000, self.wake)
        for one in self._watched:
            one.waiters[self] = None

    def grown(self, size: int) -> None:
        self.missing_bytes -= size
        if self.missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        self._leave()
        if not self.done():
            self.set_result(self._look)

    def cancel(self, msg: Any | None = None) -> bool:
        """The connection is gone."""
        self._leave()
        return super().cancel(msg)

    def _leave(self) -> None:
        self._timer.cancel()
        for one in self._watched:
            one.waiters.pop(self, None)
