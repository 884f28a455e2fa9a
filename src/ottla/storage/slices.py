"""Parts of log files, as a Fetch answers with them: nothing is read until somebody sends them."""

from contextlib import suppress
from dataclasses import dataclass

from ottla.io.ports import File

_READ_AHEAD = 1 << 18
SHARED_MAX = 1 << 12
"""What is not larger is kept once it was read: whoever else gets the same slice need not read it again."""


@dataclass(slots=True)
class Slice:
    """Batches in a file, the last perhaps cut, as they go to a consumer. Its `len` is theirs.

    Nobody changes one. It is not frozen because making a frozen one takes four times as long, for every fetch.
    """

    file: File | None
    position: int
    length: int
    first_offset: int
    """Of the first batch, which may begin before the offset that was asked for."""
    _data: bytes | None = None

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """All of it; an `OSError` where the file has become too short."""
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
        """What is left after so many bytes."""
        return Slice(self.file, self.position + count, self.length - count, self.first_offset) if count else self

    def cut_short(self) -> OSError:
        return OSError(f"{self.file} ends before position {self.position + self.length}")

    def is_warm(self) -> bool:
        """Whether reading hardly has to wait for the disk, as far as the first and the last byte tell."""
        if self.file is None or not self.length:
            return True
        ends = self.position, self.position + self.length - 1
        return all(self.file.read_warm(position, 1) is not None for position in ends)

    def read_ahead(self) -> None:
        """Have the system keep the bytes in memory. For a thread; an error shows when they are sent."""
        end = self.position + self.length
        with suppress(OSError):
            for position in range(self.position, end, _READ_AHEAD):
                if self.file is not None:
                    self.file.read(position, min(_READ_AHEAD, end - position))
