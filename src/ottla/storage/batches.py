"""Walking the batches of a log file in bounded memory."""

from collections.abc import Iterator
from typing import NamedTuple

from ottla import kernel
from ottla.core.log.indexes import RELATIVE_OFFSET_MAX
from ottla.io.ports import File
from ottla.kernel import MAGIC, MAGIC_AT, BatchHeader, CorruptBatch

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


def find_batch(file: File, start: int, end: int, from_offset: int) -> int | None:
    """Where the first whole batch begins, at `start` or later, that has a right CRC and offsets from `from_offset` on;
    whatever the bytes before it are."""
    for chunk_start in range(start, end - kernel.HEADER_SIZE + 1, _CHUNK):
        data = file.read(chunk_start, min(_CHUNK + kernel.HEADER_SIZE - 1, end - chunk_start))
        magic_at = data.find(MAGIC, MAGIC_AT)
        while magic_at >= 0:
            at = magic_at - MAGIC_AT
            if len(data) - at < kernel.HEADER_SIZE:
                break
            position = chunk_start + at
            size = _size_of(data, at, end - position, from_offset)
            if size and kernel.crc_ok(file.read(position, size), 0, size):
                return position
            magic_at = data.find(MAGIC, magic_at + 1)
    return None


def _size_of(data: bytes, at: int, left: int, from_offset: int) -> int | None:
    """The size of the batch whose header may be there; None where it cannot be."""
    try:
        header = kernel.read_header(data, at)
    except CorruptBatch:
        return None
    fits = header.size <= left and header.last_offset_delta >= 0
    return header.size if fits and 0 <= header.base_offset - from_offset <= RELATIVE_OFFSET_MAX else None
