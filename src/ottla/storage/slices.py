"""Parts of log files that answer a Fetch. Nothing is read until they are sent."""

from contextlib import suppress
from dataclasses import dataclass

from ottla.io.ports import File

_READ_AHEAD = 1 << 18
SHARED_MAX = 1 << 12
"""Slices up to this size keep their bytes after the first read, for other readers of the same slice."""


@dataclass(slots=True)
class Slice:
    """Batches in a file, the last perhaps cut, as they are sent to a consumer. `len` is their size in bytes.

    Immutable by convention: creating a frozen dataclass takes four times as long, and each Fetch creates one.
    """

    file: File | None
    position: int
    length: int
    first_offset: int
    """Of the first batch, which may begin before the requested offset."""
    _data: bytes | None = None

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """All bytes. Raises `OSError` if the file has become too short."""
        if self._data is not None:
            return self._data
        if self.file is None:
            return b""
        data = self.file.read(self.position, self.length)
        if len(data) != self.length:
            raise self.cut_short()
        if self.length <= SHARED_MAX:
            self._data = data
        return data

    def after(self, count: int) -> "Slice":
        """The slice without its first `count` bytes."""
        return Slice(self.file, self.position + count, self.length - count, self.first_offset) if count else self

    def cut_short(self) -> OSError:
        return OSError(f"{self.file} ends before position {self.position + self.length}")

    def is_warm(self) -> bool:
        """Whether reading will hardly wait for the disk, judged by the first and the last byte."""
        if self.file is None or not self.length:
            return True
        ends = self.position, self.position + self.length - 1
        return all(self.file.read_warm(position, 1) is not None for position in ends)

    def read_ahead(self) -> None:
        """Load the bytes into the page cache. Runs in a thread; an error shows up when they are sent."""
        end = self.position + self.length
        with suppress(OSError):
            for position in range(self.position, end, _READ_AHEAD):
                if self.file is not None:
                    self.file.read(position, min(_READ_AHEAD, end - position))
