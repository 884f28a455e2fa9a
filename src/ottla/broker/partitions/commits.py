"""Waits until appended records are committed. Produce, transaction markers and coordinators use it.

Rule 1: a wait belongs to the leader epoch in which the records were appended. It ends when the high watermark of that
        epoch reaches the offset after them. An offset alone proves nothing: the next leader may assign it to other
        records.
Rule 2: when the epoch ends, every wait is refused. The records may still be committed later; the client retries.
Rule 3: waits are kept in the order of their offsets, because records are appended in that order.
"""

import asyncio
from collections import deque

from ottla.wire.errors import Error, Refused

Commit = asyncio.Future[Refused | None]
"""Done when the records are committed (the result is None), or refused, or late (the result is the reason)."""


class _Wait:
    __slots__ = ("deadline_s", "done", "offset")

    def __init__(self, offset: int, deadline_s: float | None, done: Commit) -> None:
        self.offset, self.deadline_s, self.done = offset, deadline_s, done

    def end(self, refusal: Refused | None) -> None:
        if not self.done.done():
            self.done.set_result(refusal)


class Commits:
    """The waits of one partition in its current leader epoch."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waits: deque[_Wait] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waits)

    def wait(self, offset: int, timeout_ms: int | None) -> Commit:
        """Wait until the high watermark has reached `offset`, at most `timeout_ms`; None means without limit."""
        loop = asyncio.get_running_loop()
        deadline_s = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        wait = _Wait(offset, deadline_s, loop.create_future())
        self._waits.append(wait)
        if deadline_s is not None and (self._timer is None or deadline_s < self._timer.when()):
            self._set_timer(deadline_s)
        return wait.done

    def reached(self, high_watermark: int) -> None:
        waits = self._waits
        while waits and waits[0].offset <= high_watermark:
            waits.popleft().end(None)
        if not waits and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def refuse(self, refusal: Refused) -> None:
        """End every wait with this refusal."""
        waits, self._waits = self._waits, deque()
        for wait in waits:
            wait.end(refusal)
        self.reached(-1)

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(at_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        late = [wait for wait in self._waits if wait.deadline_s is not None and wait.deadline_s <= now_s]
        for wait in late:
            self._waits.remove(wait)
            wait.end(Refused(Error.REQUEST_TIMED_OUT, f"{self._name}: not committed in time up to {wait.offset}"))
        deadlines = [wait.deadline_s for wait in self._waits if wait.deadline_s is not None]
        if deadlines:
            self._set_timer(min(deadlines))
