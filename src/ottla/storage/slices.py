"""Parts of log files, as a Fetch answers with them: nothing is read until somebody sends them."""

from contextlib import suppress
from dataclasses import dataclass

from ottla.io.ports import File

_READ_AHEAD = 1 << 18


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

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        return self.file.read(self.position, self.length) if self.file is not None else b""

    def is_warm(self) -> bool:
        return self.file is None or self.file.is_warm(self.position, self.length)

    def read_ahead(self) -> None:
        """Have the system keep the bytes in memory. For a thread; an error shows when they are sent."""
        end = self.position + self.length
        with suppress(OSError):
            for position in range(self.position, end, _READ_AHEAD):
                if self.file is not None:
                    self.file.read(position, min(_READ_AHEAD, end - position))
