"""The bytes received in one round of the event loop, in the buffer that all connections share.

When many producers have a request each in flight, a round of the loop finds many connections ready. Their bytes are
processed at the end of the round, one after the other. So the batches of a partition are written together
(`FastPath.write`), and the responses are sent together. At most 32 connections wait: a client with a response continues
while the broker works at the rest.

Rule 1: received bytes stay in place until they are processed; the next connection receives behind them.
Rule 2: only a connection with shortcuts for Produce waits, and its bytes are processed before any later ones of its
        own. A connection that was also the last to be read does not wait: it may be the only one.
Rule 3: when those processed so far have taken some milliseconds, the others wait for their turn (`backlog`).
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from ottla.io.ports import Clock

_TOGETHER_MAX = 32
_TAKING_MS_MAX = 6


class Receiver(Protocol):
    def take(self, data: memoryview, now_ms: int) -> None: ...

    def postpone(self, data: memoryview, now_ms: int) -> None: ...

    def broken(self, error: Exception) -> None: ...

    def send_ready(self) -> None: ...


class ReceiveRound:
    def __init__(self, size: int, clock: Clock, write: Callable[[], None]) -> None:
        """`write` appends the batches that were taken (`FastPath.write`)."""
        self._write = write
        self._clock = clock
        self._buffer = memoryview(bytearray(size))
        self.free = self._buffer
        """Where the next connection receives."""
        self._waiting: list[tuple[Receiver, memoryview]] = []
        self._last: Receiver | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def keep(self, sender: Receiver, size: int) -> bool:
        """Whether the bytes wait for the end of the round; if not, they must be processed at once."""
        if not self._waiting:
            if sender is self._last:
                return False
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self.take_waiting)
        self._last = sender
        self._waiting.append((sender, self.free[:size]))
        self.free = self.free[size:]
        if len(self._waiting) >= _TOGETHER_MAX or len(self.free) < len(self._buffer) // 2:
            self.take_waiting()
        return True

    def take_waiting(self) -> None:
        """Called at the end of the round. A failing connection does not affect the others."""
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
            self._write()
        finally:
            self.free = self._buffer
        for sender, _ in waiting:
            sender.send_ready()
