"""A frame that has arrived in part, in memory of its connection's own.

It grows with what has really arrived: a client may announce a hundred megabytes and send ten bytes.
"""

from struct import Struct

from ottla.broker.rooms import Room, Rooms

_SIZE = Struct(">i")
_ROOM_MIN = 4096
ROOM_BYTES = 1 << 18


class HalfFrame:
    __slots__ = ("_filled", "_limit", "_room", "_rooms")

    def __init__(self, rooms: Rooms, limit: int, begun: memoryview) -> None:
        """`begun` is what has arrived; `limit` is how large a frame may be."""
        self._rooms = rooms
        self._limit = limit
        self._filled = len(begun)
        needed = max(_ROOM_MIN, 2 * self._filled)
        if self._filled >= _SIZE.size:
            # A frame of a moderate size gets its room at once, a huge one only as its bytes arrive.
            needed = max(needed, min(_SIZE.unpack_from(begun)[0] + _SIZE.size, ROOM_BYTES))
        self._room: Room = rooms.take(needed)
        self._room[: self._filled] = begun

    def __len__(self) -> int:
        """How many bytes have arrived."""
        return self._filled

    @property
    def data(self) -> memoryview:
        return memoryview(self._room)[: self._filled]

    @property
    def held_bytes(self) -> int:
        """How much memory it takes."""
        return len(self._room) if isinstance(self._room, bytearray) else self._filled

    def room(self) -> memoryview:
        """Where the next bytes go."""
        if self._filled == len(self._room):
            self._grow()
        return memoryview(self._room)[self._filled :]

    def received(self, size: int) -> bool:
        """So many bytes have arrived in the room; whether the frame is whole, as far as can be told."""
        self._filled += size
        return self._filled >= self._needed()

    def _needed(self) -> int:
        if self._filled < _SIZE.size:
            return _SIZE.size
        size: int = _SIZE.unpack_from(self._room)[0]
        if not 0 <= size <= self._limit:
            return _SIZE.size  # Enough to see that it cannot be: it is refused before any more is waited for.
        return size + _SIZE.size

    def _grow(self) -> None:
        doubled = 2 * self._filled
        room = self._rooms.take(doubled if doubled <= ROOM_BYTES else self._needed())
        room[: self._filled] = memoryview(self._room)[: self._filled]
        self._rooms.give_back(self._room)
        self._room = room

    def give_back(self) -> None:
        """Nobody reads from it any more."""
        self._rooms.give_back(self._room)
