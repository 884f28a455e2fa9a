"""Answers leave when all that has arrived was looked at.

Whoever waits for an answer sleeps, and waking it costs more than sending. When many connections have answers at the
same time, the first wakes the client and the others find it awake: so they go together, at the end of the loop's round.
But not all of hundreds: a client that has some answers goes on while the broker works at the rest.
Only whoever was the last to send, too, has nobody to go with, and a round of the loop less to wait for.
"""

import asyncio
from typing import Protocol

_TOGETHER_MAX = 16


class Sender(Protocol):
    def send_ready(self) -> None: ...


class Outbox:
    def __init__(self) -> None:
        self._waiting: list[Sender] = []
        self._last: Sender | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, sender: Sender) -> bool:
        """Let it send, at the end of this round at the latest; once is enough. Whether it is alone, and has sent."""
        if not self._waiting:
            if sender is self._last:
                sender.send_ready()
                return True
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._send)
        self._waiting.append(sender)
        self._last = sender
        if len(self._waiting) >= _TOGETHER_MAX:
            self._send()
        return False

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        sent = 0
        try:
            for sender in waiting:
                sent += 1
                sender.send_ready()
        finally:
            # One that fails must not keep back the answers of those after it.
            for sender in waiting[sent:]:
                self.add(sender)
