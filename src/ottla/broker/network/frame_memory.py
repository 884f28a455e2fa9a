"""Memory limit for requests that have arrived in part, over all connections.

Rule 1: the limit is `queued.max.request.bytes`, or `DEFAULT_BYTES_MAX` if that is -1. Received bytes count, not
        announced ones.
Rule 2: above the limit, connections with part of a large frame are not read from until others are done. Only the frame
        that was begun first continues, so that one always completes.
Rule 3: a client that may send and does not while others wait is disconnected (`Connections.close_silent`).
"""

from typing import Protocol

DEFAULT_BYTES_MAX = 256 << 20
_NEVER_WAITS_MAX = 1 << 16
"""A connection that holds no more than this never waits."""


class MemoryWaiter(Protocol):
    def go_on(self) -> None:
        """Called when memory may be available."""


class FrameMemory:
    """The memory for incomplete frames of a node."""

    def __init__(self, limit: int) -> None:
        self._limit = limit if limit > 0 else DEFAULT_BYTES_MAX
        self.total = 0
        self._held: dict[MemoryWaiter, int] = {}
        """In the order in which their frames began."""
        self.waiting: dict[MemoryWaiter, None] = {}

    def holds(self, holder: MemoryWaiter, size: int) -> None:
        """Set the memory of a connection; 0 removes it and lets another continue."""
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

    def must_wait(self, holder: MemoryWaiter) -> bool:
        """Whether a connection must not be read from now; if so, `go_on` is called when it may."""
        if self.total <= self._limit or self._held.get(holder, 0) <= _NEVER_WAITS_MAX or self._is_first(holder):
            self.waiting.pop(holder, None)
            return False
        self.waiting[holder] = None
        return True

    def _is_first(self, holder: MemoryWaiter) -> bool:
        return next(iter(self._held), None) is holder

    def _let_go_on(self) -> None:
        for holder in list(self.waiting):
            if self.total > self._limit and not self._is_first(holder):
                return
            if self.waiting.pop(holder, self) is None:
                holder.go_on()
