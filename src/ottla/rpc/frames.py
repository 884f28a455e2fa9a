"""Splits a stream of bytes into response frames.

Rule 1: the stream may be cut anywhere; complete frames are returned at once, in order.
Rule 2: a frame that arrives in one piece is a view of that piece; only others are joined from pieces.
Rule 3: a size that no response can have raises `BadFrame`: the peer does not speak this protocol.
"""

from struct import Struct
from typing import Final

from ottla.wire.frame import BadFrame

_SIZE: Final = Struct(">i")


class FrameReader:
    """The frames of one connection."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = _SIZE.size  # With fewer bytes than this no further frame is complete.

    def feed(self, data: bytes) -> list[memoryview]:
        """The frames that are complete now, without their sizes."""
        self._parts.append(data)
        self._held += len(data)
        if self._held < self._needed:
            return []
        stream = memoryview(data if len(self._parts) == 1 else b"".join(self._parts))
        frames: list[memoryview] = []
        position, end = 0, len(stream)
        needed = _SIZE.size
        while end - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(stream, position)
            if not _SIZE.size <= size <= self._limit:
                raise BadFrame(f"a frame of {size} bytes; {_SIZE.size} to {self._limit} are possible")
            needed = _SIZE.size + size
            if end - position < needed:
                break
            frames.append(stream[position + _SIZE.size : position + needed])
            position += needed
            needed = _SIZE.size
        self._parts = [bytes(stream[position:])] if position < end else []
        self._held = end - position
        self._needed = needed
        return frames
