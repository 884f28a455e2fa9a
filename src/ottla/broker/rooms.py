"""Room for the halves of large requests that have arrived.

Rule 1: a small room is the allocator's business. A larger one made anew is cleared, page by page, at the price of
        receiving it a second time: such rooms are all of one size, and used over and over.
Rule 2: only a few are kept: those of a crowd go with it.
Rule 3: a huge room is mapped: the system gives a page of memory when something arrives in it, and takes all of them
        back at once. It has the size of the whole frame, so that nothing is copied while a frame grows.
"""

import mmap

Room = bytearray | mmap.mmap

_LARGE_MIN = 1 << 15
_KEPT_MAX = 8


class Rooms:
    def __init__(self, size: int) -> None:
        """`size` is what every room that is kept holds."""
        self._size = size
        self.free: list[bytearray] = []
        """Nobody's: whatever is in them."""

    def take(self, needed: int) -> Room:
        """A room of at least that size, with anything in it. OSError where the system has no memory for it."""
        if needed > self._size:
            return mmap.mmap(-1, needed, flags=mmap.MAP_PRIVATE)
        if needed >= _LARGE_MIN:
            return self.free.pop() if self.free else bytearray(self._size)
        return bytearray(needed)

    def give_back(self, room: Room) -> None:
        """Nobody reads from it any more."""
        if isinstance(room, bytearray) and len(room) == self._size and len(self.free) < _KEPT_MAX:
            self.free.append(room)
