"""Fetch requests that wait for more bytes.

Rule 1: a waiter is woken when its partitions have grown by enough readable bytes, when its time is up, or when a change
        must be seen immediately (`wake`). The waiter then reads again. A read_committed reader counts the bytes below
        the last stable offset, other readers those below the high watermark.
Rule 2: a waiter is woken once, and is registered nowhere afterwards.
Rule 3: the code that wakes a waiter does not read for it. The waiters that were woken in a round of the loop read one
        after the other at its end, some at a time: thousands may wait for one partition.
Rule 4: one timer serves all waiters, with Kafka's precision of a millisecond. It is set for the earliest deadline. It
        is not moved when that waiter is woken earlier, as nearly all are.
"""

import asyncio
from collections.abc import Callable, Generator, Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

_LEFT_OVER_MAX = 100
_TOLD_AT_ONCE = 100


class Watcher(Protocol):
    """An object that is notified when a partition grows or changes."""

    def grown(self, size: int, stable_size: int, /) -> None:
        """Called when the partition has grown: `size` more bytes are below the high watermark, and `stable_size` more
        below the last stable offset."""

    def wake(self) -> None:
        """Called when the partition has changed in another way, or is being removed."""


class Watched(Protocol):
    """An object that grows and has waiters. They are an ordered set, so that the order of waking does not depend on
    hashes."""

    waiters: dict[Watcher, None]


class Waiter:
    """The part of a future's interface that a connection needs. Most fetches of a reader at the end of its log wait,
    and a future with a timer of its own costs more than all the rest of such a fetch.

    Its result is the function `look`, which the waiting code calls to read again.
    """

    __slots__ = ("_cancelled", "_committed_only", "_done", "_look", "_parked", "_waiting", "_watched", "missing_bytes")

    def __init__(
        self,
        waiting: "WaitingRoom",
        watched: Iterable[Watched],
        missing_bytes: int,
        wait_ms: int,
        look: Callable[[], Any],
        *,
        committed_only: bool,
    ) -> None:
        self.missing_bytes = missing_bytes
        self._committed_only = committed_only
        self._look = look
        self._watched = watched
        self._waiting = waiting
        self._cancelled = False
        self._done: Callable[[Waiter], None] | None = None
        self._parked: int | None = waiting.park(self, wait_ms)
        for one in watched:
            one.waiters[self] = None

    def grown(self, size: int, stable_size: int) -> None:
        grown = stable_size if self._committed_only else size
        self.missing_bytes -= grown
        if grown and self.missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        if self._parked is not None:
            self._leave()
            self._waiting.woken(self)

    def cancel(self) -> None:
        """Stop waiting: the connection is gone."""
        self._leave()
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def add_done_callback(self, done: "Callable[[Waiter], None]") -> None:
        self._done = done

    def result(self) -> Callable[[], Any]:
        return self._look

    def __await__(self) -> Generator[Any, None, Callable[[], Any]]:
        """Wait in a coroutine, which needs a future."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: Waiter) -> None:
            if not woken.done():
                woken.set_result(None)

        self._done = wake
        try:
            yield from woken
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self._look

    def tell(self) -> None:
        """Call the callback. Runs at the end of the round in which the waiter was woken."""
        if self._done is not None and not self._cancelled:
            self._done(self)

    def _leave(self) -> None:
        if self._parked is not None:
            self._waiting.leave(self, self._parked)
            self._parked = None
        for one in self._watched:
            one.waiters.pop(self, None)


class WaitingRoom:
    """The waiters of a node. Calls the callbacks of woken waiters, and wakes the waiters whose time is up."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: list[Waiter] = []
        self._until: dict[int, dict[Waiter, None]] = {}
        """The waiters by their deadline, in milliseconds of the loop's time."""
        self._times: list[int] = []
        """A heap of the deadlines; some may have no waiter left."""
        self._timer: asyncio.TimerHandle | None = None
        self._next: int | None = None
        """The deadline that the timer is set for."""

    def __len__(self) -> int:
        return sum(map(len, self._until.values()))

    def park(self, waiter: Waiter, wait_ms: int) -> int:
        """Wake the waiter after `wait_ms`; returns the key for `leave`."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        until = int(self._loop.time() * 1000) + wait_ms + 1
        together = self._until.get(until)
        if together is None:
            together = self._until[until] = {}
            self._note_time(until)
        together[waiter] = None
        return until

    def leave(self, waiter: Waiter, until: int) -> None:
        together = self._until[until]
        del together[waiter]
        if not together:
            del self._until[until]

    def _note_time(self, until: int) -> None:
        if len(self._times) > 2 * len(self._until) + _LEFT_OVER_MAX:
            self._times = list(self._until)
            heapify(self._times)
        else:
            heappush(self._times, until)
        if self._next is None or until < self._next:
            self._set_timer(until)

    def _set_timer(self, until: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        assert self._loop is not None
        self._next = until
        self._timer = self._loop.call_at(until / 1000, self._expire, until) if until is not None else None

    def _expire(self, now: int) -> None:
        while self._times and (self._times[0] <= now or self._times[0] not in self._until):
            for waiter in list(self._until.get(heappop(self._times), ())):
                waiter.wake()
        self._set_timer(self._times[0] if self._times else None)

    def woken(self, waiter: Waiter) -> None:
        if not self._woken:
            assert self._loop is not None
            self._loop.call_soon(self._tell)
        self._woken.append(waiter)

    def _tell(self) -> None:
        woken, self._woken = self._woken, []
        told = 0
        try:
            for waiter in woken[:_TOLD_AT_ONCE]:
                told += 1
                waiter.tell()
        finally:
            # A callback that fails must not keep the other waiters waiting.
            for waiter in woken[told:]:
                self.woken(waiter)
