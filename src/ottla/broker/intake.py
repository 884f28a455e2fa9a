"""What arrives in one round of the loop, in the buffer that all connections share.

When many producers have a request each under way, a round of the loop finds many of them ready. What they sent is taken
at the end of the round, one after the other, so that the batches of a partition are written together (`appends`) and
the answers leave together. But not those of hundreds: a client that has its answer goes on while the broker works at
the rest.

Rule 1: what a connection received stays where it is until it is taken; the next connection receives behind it.
Rule 2: only a connection with lanes waits, and it is let go before anything else of its own is looked at. Whoever was
        the last to be read, too, has nobody to wait for.
Rule 3: when those taken so far have taken some milliseconds, the others wait for their turn (`backlog`).
"""

import asyncio
from typing import Protocol

from ottla.broker.appends import Appends
from ottla.io.ports import Clock

_TOGETHER_MAX = 32
_TAKING_MS_MAX = 6


class Sender(Protocol):
    def take(self, data: memoryview, now_ms: int) -> None: ...

    def postpone(self, data: memoryview, now_ms: int) -> None: ...

    def broken(self, error: Exception) -> None: ...

    def send_ready(self) -> None: ...


class Intake:
    def __init__(self, size: int, clock: Clock) -> None:
        self.appends = Appends()
        self._clock = clock
        self._buffer = memoryview(bytearray(size))
        self.room = self._buffer
        """Where the next connection receives."""
        self._waiting: list[tuple[Sender, memoryview]] = []
        self._last: Sender | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def keep(self, sender: Sender, size: int) -> bool:
        """Whether what was received waits for the end of the round; if not, it has to be taken at once."""
        if not self._waiting:
            if sender is self._last:
                return False
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self.take_waiting)
        self._last = sender
        self._waiting.append((sender, self.room[:size]))
        self.room = self.room[size:]
        if len(self._waiting) >= _TOGETHER_MAX or len(self.room) < len(self._buffer) // 2:
            self.take_waiting()
        return True

    def take_waiting(self) -> None:
        """At the end of the round. One that fails must not keep the others from being taken."""
        waiting, self._waiting = self._waiting, []
        began_ms = now_ms = self._clock.monotonic_ms()
        try:
            for sender, data in waiting:
                try:
                    if now_ms - began_ms < _TAKING_MS_MAX:
                        sender.take(data, now_ms)
                        now_ms = self._clock.monotonic_ms()
                    else:
                        sender.postpone(data, now_ms)
                except Exception as error:
                    sender.broken(error)
            self.appends.write()
        finally:
            self.room = self._buffer
        for sender, _ in waiting:
            sender.send_ready()
