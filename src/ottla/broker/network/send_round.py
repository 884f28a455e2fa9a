"""Sends responses at the end of a round of the event loop.

Waking a sleeping client costs more than sending. When many connections have responses at the same time, the first wakes
the client process and the others find it awake, so they are sent together. The number is limited: a client with some
responses continues while the broker works at the rest.

A connection that was also the last to send does not wait: it may be the only one, and saves a round of the loop.
"""

import asyncio
from typing import Protocol

_TOGETHER_MAX = 16


class AnswerSender(Protocol):
    def send_ready(self) -> None: ...


class SendRound:
    def __init__(self) -> None:
        self._waiting: list[AnswerSender] = []
        self._last: AnswerSender | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, sender: AnswerSender) -> bool:
        """Call `sender.send_ready`: at once if no sender waits and it was also the last one to send, otherwise at the
        end of the round. Returns whether it was called at once."""
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
            # A failing connection must not keep back the responses of the others.
            for sender in waiting[sent:]:
                self.add(sender)
