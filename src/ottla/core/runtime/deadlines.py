"""Deadlines by key. Most are moved many times before one is due.

Rule 1: a key has one deadline; setting it again replaces it.
Rule 2: moving a deadline later, as every heartbeat does, costs one dictionary entry. The heap is
        corrected when the old time has come.
"""

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """The deadlines of a state machine."""

    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._earliest_in_heap: dict[K, int] = {}
        self._births = 0  # Keeps equal deadlines in the order they were set, and keys from being compared.

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def __len__(self) -> int:
        return len(self._at)

    def at(self, key: K) -> int | None:
        return self._at.get(key)

    def set(self, key: K, at_ms: int) -> None:
        self._at[key] = at_ms
        known = self._earliest_in_heap.get(key)
        if known is None or at_ms < known:
            self._births += 1
            heappush(self._heap, (at_ms, self._births, key))
            self._earliest_in_heap[key] = at_ms

    def cancel(self, key: K) -> None:
        self._at.pop(key, None)

    def next(self) -> int | None:
        """A time not after the earliest deadline; None if there is no deadline."""
        self._forget_cancelled()
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[K]:
        """Remove and return the keys whose time has come."""
        keys = []
        while self._heap and self._heap[0][0] <= now_ms:
            key = self._pop()
            at_ms = self._at.get(key)
            if at_ms is None:
                continue
            if at_ms > now_ms:
                self.set(key, at_ms)
            else:
                del self._at[key]
                keys.append(key)
        return keys

    def shift(self, by_ms: int) -> None:
        """Move every deadline, because the wall clock was set forward or back."""
        moved = {key: at_ms + by_ms for key, at_ms in self._at.items()}
        self._at, self._heap, self._earliest_in_heap = {}, [], {}
        for key, at_ms in moved.items():
            self.set(key, at_ms)

    def _forget_cancelled(self) -> None:
        while self._heap and self._heap[0][2] not in self._at:
            self._pop()

    def _pop(self) -> K:
        at_ms, _, key = heappop(self._heap)
        if self._earliest_in_heap.get(key) == at_ms:
            del self._earliest_in_heap[key]
        return key
