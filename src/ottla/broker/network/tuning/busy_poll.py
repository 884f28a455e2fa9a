"""Keeps the event loop awake for a client that sends its next request at once (ADR 8).

A client that waits for each response sends the next request within some microseconds. Falling asleep and waking up
takes longer, most of all in a virtual machine. So the loop runs without sleeping for a moment:

Rule 1: only for a client that is served alone, that repeatedly sent its next request so soon, and that never sent
        without waiting: a streaming client is better read several requests at a time (`core/read_pace`), and with many
        clients more requests have arrived after a sleep.
Rule 2: if the client does not send within some rounds of the loop, the loop sleeps, and the pattern must be detected
        again.
Rule 3: the loop does not stay awake on a machine without another processor for the client.
"""

import asyncio

SEEN = 32
SEEN_WITHIN_MS = 8
ROUNDS_MAX = 80
"""A round that finds nothing takes about a microsecond."""


class BusyPoll:
    """The busy polling of a node."""

    def __init__(self, *, processors: int) -> None:
        self._is_possible = processors > 1
        self.reads = 0
        """How often any connection was read."""
        self._reads_before = 0
        self._seen = 0
        self._since_ms = 0
        self._rounds_left = 0
        self.is_awake = False
        """Whether the loop does not sleep."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def answered(self, now_ms: int) -> None:
        """Called when the only request of the last read was answered, and the previous response was on the same
        connection. Busy polling starts after enough of these."""
        is_alone = self.reads - self._reads_before == 1
        self._reads_before = self.reads
        if not is_alone or not self._is_possible:
            self._seen = self._rounds_left = 0
            return
        self._rounds_left = ROUNDS_MAX
        if self.is_awake:
            return
        if not self._seen:
            self._since_ms = now_ms
        self._seen += 1
        if self._seen == SEEN:
            self._seen = 0
            self.is_awake = now_ms - self._since_ms <= SEEN_WITHIN_MS
            if self.is_awake:
                self._loop = asyncio.get_running_loop()
                self._go_round()

    def _go_round(self) -> None:
        if self._rounds_left:
            assert self._loop is not None
            self._rounds_left -= 1
            self._loop.call_soon(self._go_round)
        else:
            self.is_awake = False
