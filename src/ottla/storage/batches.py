"""Walking the batches of a log file in bounded memory."""

from collections.abc import Iterator
from typing import NamedTuple

from ottla import kernel
from ottla.core.log.indexes import RELATIVE_OFFSET_MAX
from ottla.io.ports import File
from ottla.kernel import MAGIC, MAGIC_AT, BatchHeader, CorruptBatch

_CHUNK = 1 << 20
_HOP = 4096
_PASSED_MAX = 1 << 24
"""Bytes that are looked through for the next batch after a damaged one; a batch is hardly ever larger."""


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


class DamagedAt(CorruptBatch):
    """No batch can be where one should begin."""

    def __init__(self, file: File, position: int, reason: str) -> None:
        super().__init__(f"{file.path} is damaged at position {position}: {reason}")
        self.position = position


def headers(file: File, position: int, end: int, expected: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches from `position` on; reads little more than the headers.

    Offsets that do not rise (from `expected` on) or a batch that does not fit raise `DamagedAt`. No CRC is checked,
    nor would it cover the base offset.
    """
    data, start = b"", position
    while position < end:
        if position + kernel.HEADER_SIZE > start + len(data):
            data, start = file.read(position, min(_HOP, end - position)), position
        try:
            header = kernel.read_header(data, position - start)
        except CorruptBatch as error:
            fault = kernel.scan(memoryview(data)[position - start :], check_crc=False).fault
            raise DamagedAt(file, position, fault or f"{end - position} bytes are too few for a batch") from error
        if header.base_offset < expected or header.last_offset_delta < 0 or position + header.size > end:
            raise DamagedAt(
                file,
                position,
                f"no batch of {header.size} bytes with offsets {header.base_offset} to {header.last_offset} can be "
                f"there (offset {expected} or more, {end - position} bytes left)",
            )
        yield position, header
        expected = header.next_offset
        position += header.size


class PassingHeaders:
    """As `headers`, but goes on at the next whole batch where one is damaged; `damage` tells of the last such place.

    Raises `DamagedAt` where none follows within reach.
    """

    def __init__(self, file: File, position: int, end: int) -> None:
        self._file = file
        self._position = position
        self._end = end
        self.damage: DamagedAt | None = None

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        start, expected = self._position, 0
        last: tuple[int, BatchHeader] | None = None
        while True:
            try:
                for position, header in headers(self._file, start, self._end, expected):
                    last = position, header
                    yield last
                    expected = header.next_offset
                return
            except DamagedAt as damage:
                self.damage, begin = damage, damage.position
                if last is not None and not kernel.crc_ok(self._file.read(last[0], last[1].size), 0, last[1].size):
                    # It is this one that is damaged, and its length leads nowhere.
                    self.damage = DamagedAt(self._file, last[0], "the batch has the wrong CRC")
                    begin, expected = last[0] + 1, last[1].base_offset + 1
                following = find_batch(self._file, begin, min(self._end, begin + _PASSED_MAX), expected)
                if following is None:
                    raise self.damage from None
                start, last = following, None


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
