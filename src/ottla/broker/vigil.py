"""Staying awake for a client that asks again at once.

A client that waits for each answer leaves the broker nothing to do for some microseconds before the next request. To
fall asleep and to be woken takes longer than that, most of all in a virtual machine, whose processor is somebody
else's meanwhile. So the loop goes round without sleeping, for a moment:

Rule 1: only for a client that is served alone, that asked so soon again and again, and that never sent on without
        waiting: who streams is better read some requests at a time (`core/read_pace`), and of many who ask in turn,
        more have asked when the loop has slept.
Rule 2: who does not come within some rounds of the loop is slept for, and has to be seen again.
Rule 3: nobody stays awake where the client would have no other processor to run on.
"""

import asyncio

SEEN = 32
SEEN_WITHIN_MS = 8
ROUNDS_MAX = 80
"""A round that finds nothing takes about a microsecond."""


class Vigil:
    """Of a node."""

    def __init__(self, *, processors: int) -> None:
        self._is_possible = processors > 1
        self.reads = 0
        """How often any connection was read; who is read counts it."""
        self._reads_before = 0
        self._seen = 0
        self._since_ms = 0
        self._rounds_left = 0
        self.is_awake = False
        """The loop does not sleep."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def answered(self, now_ms: int) -> None:
        """The request of one read, at this time, has its answer; the answer before was this client's, too."""
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
