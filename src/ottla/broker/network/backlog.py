"""Long work on the event loop, done in small steps.

A request may name a hundred thousand partitions, or have a response as long. Other requests must not wait until it is
done.

Rule 1: a request has a `Budget`. When it is spent, after some milliseconds or some thousand elements, the request
        pauses until its next turn. Elements are counted because the clock of a simulated node stands still while it
        works, and because counting is cheaper than reading the clock.
Rule 2: in each round of the loop one paused request gets a turn, and one connection that has requests left. So new
        arrivals wait for a few milliseconds, however much is waiting.
Rule 3: few requests are in progress at a time; the others wait until one of these is done or waits for something else.
        A request in progress may hold much memory, a waiting one holds little.
Rule 4: a request is started when it arrives. When paused requests have taken some milliseconds in one round, the round
        is crowded: everything else that arrives in it waits for its turn. Clients that have sent little are served
        first: each round serves them for some milliseconds.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from heapq import merge
from itertools import islice
from typing import TypeVar

from ottla.io.ports import Clock

T = TypeVar("T")
R = TypeVar("R")

TURN_MS = 2
ELEMENTS_PER_TURN = 2048
_ELEMENTS_PER_LOOK = 64
"""How many elements are processed between two looks at the clock."""
_IN_PROGRESS_MAX = 4
_FIRST_TURNS_MS = 6


def at_once(steps: Generator[None, None, R]) -> R:
    """Run a generator to its result without pausing."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: R = done.value
            return result


class Budget:
    """The work that one request may do in one turn."""

    __slots__ = ("_backlog", "_began_ms", "_elements", "_look_at", "gave_way", "was_called")

    def __init__(self, backlog: "Backlog") -> None:
        self._backlog = backlog
        self._began_ms = backlog.clock.monotonic_ms()
        self._elements = 0
        self._look_at = _ELEMENTS_PER_LOOK
        self.gave_way = False
        self.was_called = False
        """Whether it had a turn after a pause: it is in progress."""

    def is_spent(self, elements: int = 1) -> bool:
        """Whether it is time to pause after `elements` more. An expensive element counts as several."""
        self._elements += elements
        if self._elements < self._look_at:
            return False
        self._look_at = self._elements + _ELEMENTS_PER_LOOK
        return self._elements >= ELEMENTS_PER_TURN or self._backlog.clock.monotonic_ms() - self._began_ms >= TURN_MS

    async def give_way(self) -> None:
        """Let other requests run, and wait for the next turn of this one."""
        if not self.gave_way:
            self.gave_way = True
            self._backlog.first_turn_took(self._backlog.clock.monotonic_ms() - self._began_ms)
        await self._backlog.turn(self)
        self._began_ms = self._backlog.clock.monotonic_ms()
        self._elements, self._look_at = 0, _ELEMENTS_PER_LOOK

    async def each(self, items: Iterable[T], make: Callable[[T], R], *, cost: int | Callable[[T], int] = 1) -> list[R]:
        """Call `make` for every item, with pauses; returns the results. `cost` is the number of elements each item
        counts as."""
        made: list[R] = []
        if callable(cost):
            for item in items:
                made.append(make(item))
                if self.is_spent(cost(item)):
                    await self.give_way()
            return made
        left, at_once = iter(items), max(_ELEMENTS_PER_LOOK // cost, 1)
        while part := [make(item) for item in islice(left, at_once)]:
            made += part
            if self.is_spent(len(part) * cost):
                await self.give_way()
        return made

    async def parts(self, items: Sequence[T], size: int = _ELEMENTS_PER_LOOK) -> AsyncIterator[Sequence[T]]:
        """The items in parts of `size`; each part counts as that many elements."""
        for first in range(0, len(items), size):
            part = items[first : first + size]
            yield part
            if self.is_spent(len(part)):
                await self.give_way()

    async def sorted(self, items: Iterable[str]) -> list[str]:
        """Like the builtin `sorted`: sorts parts, and merges them."""
        unsorted = list(items)
        parts = [sorted(part) async for part in self.parts(unsorted, ELEMENTS_PER_TURN)]
        return parts[0] if len(parts) == 1 else await self.each(merge(*parts), str)

    async def run(self, steps: Generator[None, None, R], elements: int) -> R:
        """Run a generator with pauses; returns its result. It yields after every `elements` elements."""
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: R = done.value
                return result
            if self.is_spent(elements):
                await self.give_way()


class Backlog:
    """The requests and connections of a node that wait for a turn."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_crowded = False
        """Whether everything that arrives in this round waits for its turn."""
        self._first_turns_ms = 0
        self._in_progress: deque[asyncio.Future[None]] = deque()
        self._new: deque[tuple[Budget, asyncio.Future[None]]] = deque()
        self._connections: deque[Callable[[], None]] = deque()
        self._short: deque[Callable[[], None]] = deque()
        """Connections with little to process."""
        self._is_scheduled = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._in_progress) + len(self._new) + len(self._connections) + len(self._short)

    def turn(self, budget: Budget) -> "asyncio.Future[None]":
        """Completes when it is the request's turn. A request that had a turn and does not ask for another is no longer
        in progress."""
        self._schedule()
        assert self._loop is not None
        called: asyncio.Future[None] = self._loop.create_future()
        if budget.was_called:
            self._in_progress.append(called)
        else:
            self._new.append((budget, called))
        return called

    def add(self, connection: Callable[[], None], *, is_short: bool = False) -> None:
        """Call `connection` when it is its turn; it works for the time of one turn."""
        (self._short if is_short else self._connections).append(connection)
        self._schedule()

    def first_turn_took(self, took_ms: int) -> None:
        """Report that a new request or connection paused after `took_ms`."""
        self._first_turns_ms += took_ms
        if self._first_turns_ms >= _FIRST_TURNS_MS:
            self.is_crowded = True
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._give_turns)

    def _give_turns(self) -> None:
        self._is_scheduled = self.is_crowded = False
        self._first_turns_ms = 0
        self._call_request()
        try:
            self._call_connections()
        finally:
            if len(self):
                self._schedule()

    def _call_request(self) -> None:
        """Give the next paused request its turn; it resumes after this callback."""
        while self._new and len(self._in_progress) < _IN_PROGRESS_MAX:
            budget, called = self._new.popleft()
            if not called.done():  # Otherwise it was cancelled, because the connection was closed.
                budget.was_called = True
                self._in_progress.append(called)
        while self._in_progress:
            called = self._in_progress.popleft()
            if not called.done():
                called.set_result(None)
                return

    def _call_connections(self) -> None:
        until_ms = self.clock.monotonic_ms() + TURN_MS
        for _ in range(len(self._short)):
            self._short.popleft()()
            if self.clock.monotonic_ms() >= until_ms:
                break
        if self._connections:
            self._connections.popleft()()
