"""Walking the batches of a log file in bounded memory."""

from collections.abc import Iterator
from typing import NamedTuple

from ottla import kernel
from ottla.io.ports import File
from ottla.kernel import BatchHeader, CorruptBatch

_CHUNK = 1 << 20
_HOP = 4096


class BatchAt(NamedTuple):
    position: int
    header: BatchHeader
    data: memoryview
    """The whole batch."""


class Damage(NamedTuple):
    """Where the file stops being a run of valid batches, and why."""

    position: int
    reason: str


class BatchWalk:
    """The whole batches of `file` from `start`, where one begins, up to `end`. CRCs are not checked.

    Afterwards `damage` tells whether that was all.
    """

    def __init__(self, file: File, end: int, *, start: int = 0, chunk: int = _CHUNK) -> None:
        self._file = file
        self._start = start
        self._end = end
        self._chunk = chunk
        self.damage: Damage | None = None

    def __iter__(self) -> Iterator[BatchAt]:
        position, wanted = self._start, self._chunk
        while (left := self._end - position) > 0:
            data = memoryview(self._file.read(position, min(wanted, left)))
            scanned = kernel.scan(data, check_crc=False)
            start = 0
            for header in scanned.headers:
                size = header.size
                yield BatchAt(position + start, header, data[start : start + size])
                start += size
            position += scanned.consumed
            left -= scanned.consumed
            if scanned.fault is not None:
                self.damage = Damage(position, scanned.fault)
                return
            if scanned.needed > left:
                self.damage = Damage(position, f"a batch of {scanned.needed} bytes begins here, {left} are left")
                return
            if scanned.consumed == 0 and scanned.needed == 0:
                self.damage = Damage(position, f"the last {left} bytes are too few for a batch")
                return
            wanted = max(self._chunk, scanned.needed)


def headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches from `position` on; reads little more than the headers.

    Offsets that do not rise or a batch that does not fit raise `CorruptBatch`: whoever hops from header to header
    checks no CRC, and the base offset is outside of it.
    """
    data, start = b"", position
    expected = 0
    while position < end:
        if position + kernel.HEADER_SIZE > start + len(data):
            data, start = file.read(position, min(_HOP, end - position)), position
        try:
            header = kernel.read_header(data, position - start)
        except CorruptBatch as error:
            fault = kernel.scan(memoryview(data)[position - start :], check_crc=False).fault
            raise damaged(file, position, fault or f"{end - position} bytes are too few for a batch") from error
        if header.base_offset < expected or header.last_offset_delta < 0 or position + header.size > end:
            raise damaged(
                file,
                position,
                f"no batch of {header.size} bytes with offsets {header.base_offset} to {header.last_offset} can be "
                f"there (offset {expected} or more, {end - position} bytes left)",
            )
        yield position, header
        expected = header.next_offset
        position += header.size


def damaged(file: File, position: int, reason: str) -> CorruptBatch:
    return CorruptBatch(f"{file.path} is damaged at position {position}: {reason}")
