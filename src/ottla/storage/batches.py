"""Iterate over the batches of a log file in bounded memory."""

from collections.abc import Iterator
from typing import NamedTuple

from ottla import kernel
from ottla.core.log.indexes import RELATIVE_OFFSET_MAX
from ottla.io.ports import File
from ottla.kernel import MAGIC, MAGIC_AT, BatchHeader, CorruptBatch

_CHUNK = 1 << 20
_HOP = 4096
_PASSED_MAX = 1 << 24
"""How many bytes to search for the next batch after a damaged one. Batches are rarely larger."""


class BatchAt(NamedTuple):
    """A batch and its position in the file."""

    position: int
    header: BatchHeader
    data: memoryview
    """The whole batch."""


class LogDamage(NamedTuple):
    """The position where the file stops being a sequence of valid batches, and the reason."""

    position: int
    reason: str


class BatchWalk:
    """Iterate over the whole batches of `file` from `start`, a batch boundary, up to `end`. CRCs are not checked.

    After the iteration `damage` is None if it reached `end`, else it says where and why it stopped.
    """

    def __init__(self, file: File, end: int, *, start: int = 0, chunk: int = _CHUNK) -> None:
        self._file = file
        self._start = start
        self._end = end
        self._chunk = chunk
        self.damage: LogDamage | None = None

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
                self.damage = LogDamage(position, scanned.fault)
                return
            if scanned.needed > left:
                self.damage = LogDamage(position, f"a batch of {scanned.needed} bytes begins here, {left} are left")
                return
            if scanned.consumed == 0 and scanned.needed == 0:
                self.damage = LogDamage(position, f"the last {left} bytes are too few for a batch")
                return
            wanted = max(self._chunk, scanned.needed)

    def whole(self) -> Iterator[BatchAt]:
        """The same batches. Raises `DamagedAt` at the end if that is not `end`."""
        yield from self
        if self.damage is not None:
            raise DamagedAt(self._file, *self.damage)


class DamagedAt(CorruptBatch):
    """The bytes at a batch boundary are not a batch."""

    def __init__(self, file: File, position: int, reason: str) -> None:
        super().__init__(f"{file.path} is damaged at position {position}: {reason}")
        self.position = position


def headers(file: File, position: int, end: int, expected: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches from `position` on. Reads little more than the headers.

    Raises `DamagedAt` if offsets do not rise (from `expected` on) or if a batch does not fit. No CRC is checked; the
    CRC does not cover the base offset anyway.
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
    """Like `headers`, but skips damaged batches. `damage` is the last one skipped.

    Raises `DamagedAt` if no whole batch follows within `_PASSED_MAX` bytes.
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
                    # The previous batch is the damaged one: its length field led to this position.
                    self.damage = DamagedAt(self._file, last[0], "the batch has the wrong CRC")
                    begin, expected = last[0] + 1, last[1].base_offset + 1
                following = find_batch(self._file, begin, min(self._end, begin + _PASSED_MAX), expected)
                if following is None:
                    raise self.damage from None
                start, last = following, None


def find_batch(file: File, start: int, end: int, from_offset: int) -> int | None:
    """The position of the first batch at or after `start` that is whole, has a correct CRC and offsets from
    `from_offset` on. The bytes before it may be anything."""
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
    """The size in the batch header at `at`, or None if the bytes there cannot be a header."""
    try:
        header = kernel.read_header(data, at)
    except CorruptBatch:
        return None
    fits = header.size <= left and header.last_offset_delta >= 0
    return header.size if fits and 0 <= header.base_offset - from_offset <= RELATIVE_OFFSET_MAX else None
