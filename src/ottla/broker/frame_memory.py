"""Memory for the requests that have arrived in part: how much all connections hold together, and who has to wait.

Rule 1: the bound is `queued.max.request.bytes`, or `DEFAULT_BYTES_MAX` where that is -1. What counts is what has
        arrived, not what was announced.
Rule 2: past the bound, connections with a part of a large frame are not read from until others are done. Only the frame
        that was begun first goes on, so that one is always done.
Rule 3: a client that has room and sends nothing while others wait for it is cut off (`Connections.close_silent`).
"""

from typing import Protocol

DEFAULT_BYTES_MAX = 256 << 20
_NEVER_WAITS_MAX = 1 << 16
"""Whoever holds no more than that is not made to wait."""


class Holder(Protocol):
    def go_on(self) -> None:
        """There may be room."""


class FrameMemory:
    """Of a node."""

    def __init__(self, limit: int) -> None:
        self._limit = limit if limit > 0 else DEFAULT_BYTES_MAX
        self.total = 0
        self._held: dict[Holder, int] = {}
        """In the order in which they began."""
        self.waiting: dict[Holder, None] = {}

    def holds(self, holder: Holder, size: int) -> None:
        """What a connection has now; 0 ends it, and another one goes on."""
        before = self._held.get(holder, 0)
        if size == before:
            return
        self.total += size - before
        if size:
            self._held[holder] = size
        else:
            del self._held[holder]
        if size < before:
            self._let_go_on()

    def must_wait(self, holder: Holder) -> bool:
        """Whether a connection may not be read from now; if so, `go_on` is called when it may."""
        if self.total <= self._limit or self._held.get(holder, 0) <= _NEVER_WAITS_MAX or self._is_first(holder):
            self.waiting.pop(holder, None)
            return False
        self.waiting[holder] = None
        return True

    def _is_first(self, holder: Holder) -> bool:
        return next(iter(self._held), None) is holder

    def _let_go_on(self) -> None:
        for holder in list(self.waiting):
            if self.total > self._limit and not self._is_first(holder):
                return
            if self.waiting.pop(holder, self) is None:
                holder.go_on()
