"""Buffers for large requests that have arrived in part.

Rule 1: small buffers are left to the allocator. A large new buffer must be cleared page by page, which costs as much as
        receiving into it: so large buffers have one size and are reused.
Rule 2: at most 8 free buffers are kept, so that a burst of large requests does not pin memory.
Rule 3: a huge buffer is mapped: the system provides a page when bytes arrive in it, and takes all of them back at once.
        It has the size of the whole frame, so that nothing is copied while the frame grows.
"""

import mmap

PooledBuffer = bytearray | mmap.mmap

_LARGE_MIN = 1 << 15
_KEPT_MAX = 8


class BufferPool:
    def __init__(self, size: int) -> None:
        """`size` is the size of every pooled buffer."""
        self._size = size
        self.free: list[bytearray] = []
        """Their contents are undefined."""

    def take(self, needed: int) -> PooledBuffer:
        """A buffer of at least `needed` bytes, not cleared. Raises OSError if the system has no memory for it."""
        if needed > self._size:
            return mmap.mmap(-1, needed, flags=mmap.MAP_PRIVATE)
        if needed >= _LARGE_MIN:
            return self.free.pop() if self.free else bytearray(self._size)
        return bytearray(needed)

    def give_back(self, buffer: PooledBuffer) -> None:
        """Return a buffer to the pool. The caller must have dropped all views of it."""
        if isinstance(buffer, bytearray) and len(buffer) == self._size and len(self.free) < _KEPT_MAX:
            self.free.append(buffer)
