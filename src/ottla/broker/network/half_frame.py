"""An incomplete frame, in a buffer owned by its connection.

The buffer grows with the bytes received: a client may announce a hundred megabytes and send ten bytes.
"""

from struct import Struct

from ottla.broker.network.buffer_pool import BufferPool, PooledBuffer

_SIZE = Struct(">i")
_BUFFER_MIN = 4096
POOLED_BYTES = 1 << 18


class HalfFrame:
    __slots__ = ("_buffer", "_filled", "_limit", "_pool")

    def __init__(self, pool: BufferPool, limit: int, begun: memoryview) -> None:
        """`begun` are the bytes received so far; `limit` is the largest allowed frame."""
        self._pool = pool
        self._limit = limit
        self._filled = len(begun)
        needed = max(_BUFFER_MIN, 2 * self._filled)
        if self._filled >= _SIZE.size:
            # A frame of moderate size gets its whole buffer at once, a huge one as its bytes arrive.
            needed = max(needed, min(_SIZE.unpack_from(begun)[0] + _SIZE.size, POOLED_BYTES))
        self._buffer: PooledBuffer = pool.take(needed)
        self._buffer[: self._filled] = begun

    def __len__(self) -> int:
        """The number of bytes received."""
        return self._filled

    @property
    def data(self) -> memoryview:
        return memoryview(self._buffer)[: self._filled]

    @property
    def held_bytes(self) -> int:
        """The memory of this frame, including buffer space that is not filled yet."""
        return len(self._buffer) if isinstance(self._buffer, bytearray) else self._filled

    def free(self) -> memoryview:
        """The part of the buffer into which the next bytes are received. A full buffer grows first."""
        if self._filled == len(self._buffer):
            self._grow()
        return memoryview(self._buffer)[self._filled :]

    def received(self, size: int) -> bool:
        """Count `size` more received bytes; returns whether the frame may be complete."""
        self._filled += size
        return self._filled >= self._needed()

    def _needed(self) -> int:
        if self._filled < _SIZE.size:
            return _SIZE.size
        size: int = _SIZE.unpack_from(self._buffer)[0]
        if not 0 <= size <= self._limit:
            return _SIZE.size  # Enough to see that the size is invalid: the frame is refused before more is received.
        return size + _SIZE.size

    def _grow(self) -> None:
        doubled = 2 * self._filled
        buffer = self._pool.take(doubled if doubled <= POOLED_BYTES else self._needed())
        buffer[: self._filled] = memoryview(self._buffer)[: self._filled]
        self._pool.give_back(self._buffer)
        self._buffer = buffer

    def give_back(self) -> None:
        """Return the buffer to the pool. The caller must have dropped all views of it."""
        self._pool.give_back(self._buffer)
