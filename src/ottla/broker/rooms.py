"""Room for the halves of large requests that have arrived: made once, used over and over.

Rule 1: a small room is the allocator's business. A large one made anew is cleared, page by page, at the price of
        receiving it a second time.
Rule 2: large rooms are all of one size, and only a few are kept: those of a crowd go with it.
"""

_LARGE_MIN = 1 << 15
_KEPT_MAX = 8


class Rooms:
    def __init__(self, size: int) -> None:
        """`size` is what every room that is kept holds."""
        self._size = size
        self.free: list[bytearray] = []
        """Nobody's: whatever is in them."""

    def take(self, needed: int) -> bytearray:
        """A room of at least that size, with anything in it."""
        if _LARGE_MIN <= needed <= self._size:
            return self.free.pop() if self.free else bytearray(self._size)
        return bytearray(needed)

    def give_back(self, room: bytearray) -> None:
        """Nobody reads from it any more."""
        if len(room) == self._size and len(self.free) < _KEPT_MAX:
            self.free.append(room)
