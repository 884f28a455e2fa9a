"""`ottla-segment-summary`: statistics of a log's segments from a clean close, so that the next process need not open
each.

A header (version, CRC32C of the bytes after it, log end offset, its leader epoch, base offset of the active segment,
number of entries), the index, then the entries in blocks. The index has a row per block: its first base offset and the
largest timestamp up to its end. Index and blocks are each followed by their CRC32C. So a look-up reads the header, the
index and one block, whatever the number of segments. The last entry is the segment that was active.

Rule 1: an entry bounds the timestamps of the offsets up to its segment's end. Retention and compaction only remove
        records, so the bound stays true, even if Kafka runs them. A truncation invalidates it, so the file is removed
        first.
Rule 2: a truncation by Kafka is followed by records of a later leader epoch. So the file is valid only if the log is at
        least as long as it was, and its last offset then still has the same epoch.
Rule 3: the checksum of a transaction index is valid while its segment has the same size. It is written only for an
        index that this process wrote or compared with the log. A compacted log may have lost the first batch of an
        entry, so nothing cheaper detects a wrong index.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import ClassVar, NamedTuple

from crc32c import crc32c

from ottla.core.log.indexes import AbortedTxn

_VERSION = 2
_PREFIX = Struct(">hI")
_HEADER = Struct(">qiqi")
_ENTRY = Struct(">qqqqq")
_INDEX_ROW = Struct(">qq")
_LONG = Struct(">q")
_CRC = Struct(">I")
_BLOCK_ENTRIES = 100
HEADER_SIZE = _PREFIX.size + _HEADER.size
BLOCK_SIZE = _BLOCK_ENTRIES * _ENTRY.size + _CRC.size
UNKNOWN = -1


class BadSummary(ValueError):
    """The bytes are not a complete summary."""


class SummaryEntry(NamedTuple):
    """The statistics of one segment."""

    base_offset: int
    running_max: int
    """The largest timestamp of this segment and all before it."""
    size: int
    max_timestamp: int
    txn_checksum: int
    """The checksum of the transaction index; `UNKNOWN` if the index was not compared with the log."""


class SummaryHeader(NamedTuple):
    """The header of a summary."""

    end_offset: int
    leader_epoch: int
    """Of the last offset before the end."""
    active_base_offset: int
    """Of the segment that was active; those before it were closed."""
    entries: int

    @property
    def blocks(self) -> int:
        return -(-self.entries // _BLOCK_ENTRIES)

    @property
    def index_size(self) -> int:
        return self.blocks * _INDEX_ROW.size + _CRC.size

    @property
    def file_size(self) -> int:
        return HEADER_SIZE + self.index_size + self.entries * _ENTRY.size + self.blocks * _CRC.size

    def block_position(self, number: int) -> int:
        return HEADER_SIZE + self.index_size + number * BLOCK_SIZE


def txn_checksum(aborted: Sequence[AbortedTxn]) -> int:
    return crc32c(b"".join(txn.encode() for txn in aborted))


def encode_summary(end_offset: int, leader_epoch: int, entries: Sequence[SummaryEntry]) -> bytes:
    header = _HEADER.pack(end_offset, leader_epoch, entries[-1].base_offset, len(entries))
    blocks = [entries[first : first + _BLOCK_ENTRIES] for first in range(0, len(entries), _BLOCK_ENTRIES)]
    index = b"".join(_INDEX_ROW.pack(block[0].base_offset, block[-1].running_max) for block in blocks)
    rows = (b"".join(_ENTRY.pack(*entry) for entry in block) for block in blocks)
    return b"".join([_PREFIX.pack(_VERSION, crc32c(header)), header, *map(_with_crc, [index, *rows])])


def _with_crc(data: bytes) -> bytes:
    return data + _CRC.pack(crc32c(data))


def decode_header(data: bytes, file_size: int) -> SummaryHeader:
    if len(data) < HEADER_SIZE:
        raise BadSummary(f"{len(data)} bytes are too few for a summary")
    version, crc = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise BadSummary(f"version {version}; {_VERSION} is known")
    if crc != (actual := crc32c(data[_PREFIX.size : HEADER_SIZE])):
        raise BadSummary(f"CRC32C of the header is {actual:08x}, the file says {crc:08x}")
    header = SummaryHeader(*_HEADER.unpack_from(data, _PREFIX.size))
    if header.entries < 1 or header.file_size != file_size:
        raise BadSummary(f"{header.entries} entries make {header.file_size} bytes, there are {file_size}")
    return header


def decode_summary(data: bytes) -> tuple[SummaryHeader, list[SummaryEntry]]:
    """Decode a whole summary file. Raises BadSummary."""
    header = decode_header(data, len(data))
    SummaryIndex(data[HEADER_SIZE : header.block_position(0)])
    starts = map(header.block_position, range(header.blocks))
    return header, [entry for start in starts for entry in SummaryBlock(data[start : start + BLOCK_SIZE])]


class _Rows:
    """Adjacent rows that each begin with a base offset and a running maximum. Bisecting decodes only the rows it
    compares."""

    _ROW: ClassVar[Struct]
    _NAME: ClassVar[str]

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)[: -_CRC.size]
        if crc32c(self._data) != _CRC.unpack_from(data, len(data) - _CRC.size)[0]:
            raise BadSummary(f"the CRC32C of {self._NAME} is wrong")

    def __len__(self) -> int:
        return len(self._data) // self._ROW.size

    def base_offset(self, number: int) -> int:
        base_offset: int = _LONG.unpack_from(self._data, number * self._ROW.size)[0]
        return base_offset

    def running_max(self, number: int) -> int:
        running_max: int = _LONG.unpack_from(self._data, number * self._ROW.size + _LONG.size)[0]
        return running_max

    def containing(self, base_offset: int) -> int:
        """The last row that begins at or before an offset; -1 if none does."""
        return bisect_right(range(len(self)), base_offset, key=self.base_offset) - 1

    def first_reaching(self, timestamp: int) -> int:
        """The first row whose running maximum is at least `timestamp`."""
        return bisect_left(range(len(self)), timestamp, key=self.running_max)


class SummaryIndex(_Rows):
    """The index of a summary. It has a row for each block."""

    _ROW = _INDEX_ROW
    _NAME = "its index"


class SummaryBlock(_Rows):
    """One block of a summary. It has a row for each segment."""

    _ROW = _ENTRY
    _NAME = "a block"

    def __getitem__(self, number: int) -> SummaryEntry:
        return SummaryEntry(*_ENTRY.unpack_from(self._data, number * _ENTRY.size))

    def __iter__(self) -> Iterator[SummaryEntry]:
        return map(SummaryEntry._make, _ENTRY.iter_unpack(self._data))
