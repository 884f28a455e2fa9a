"""`ottla-segment-summary`: what a clean close writes down of a log's segments, so that the next process need not ask
each of them.

A header (version, CRC32C of what follows it, log end offset, its leader epoch, number of entries), then the entries in
blocks, each block followed by its CRC32C. The last entry is of the segment that was active.

Rule 1: an entry bounds the timestamps of the offsets up to its segment's end. Retention and compaction only take
        records away, so it stays true, whoever runs them; a truncation makes it void, and the file is removed before.
Rule 2: whoever else truncated the log, a replica that is not Ottla's, wrote in a later leader epoch after that. So the
        file counts only where the log is as long as it was, and its last offset then is of the same epoch now.
Rule 3: the checksum of a transaction index vouches for it as long as its segment has the same size. It is noted only
        for an index that this process wrote or held against the log.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ottla.core.log.indexes import AbortedTxn

_VERSION = 1
_PREFIX = Struct(">hI")
_HEADER = Struct(">qii")
_ENTRY = Struct(">qqqqq")
_LONG = Struct(">q")
_RUNNING_MAX_AT = 3 * _LONG.size
_CRC = Struct(">I")
_BLOCK_ENTRIES = 100
HEADER_SIZE = _PREFIX.size + _HEADER.size
BLOCK_SIZE = _BLOCK_ENTRIES * _ENTRY.size + _CRC.size
UNKNOWN = -1


class BadSummary(ValueError):
    """The bytes are no whole summary; the segments have to be asked."""


class SummaryEntry(NamedTuple):
    base_offset: int
    size: int
    max_timestamp: int
    running_max: int
    """The largest timestamp of this segment and all before it."""
    txn_checksum: int
    """Of the transaction index; `UNKNOWN` where nobody has confirmed that."""


class SummaryHeader(NamedTuple):
    end_offset: int
    leader_epoch: int
    """Of the last offset before the end."""
    entries: int

    @property
    def blocks(self) -> int:
        return -(-self.entries // _BLOCK_ENTRIES)

    @property
    def file_size(self) -> int:
        return HEADER_SIZE + self.entries * _ENTRY.size + self.blocks * _CRC.size


def txn_checksum(aborted: Sequence[AbortedTxn]) -> int:
    return crc32c(b"".join(txn.encode() for txn in aborted))


def encode_summary(end_offset: int, leader_epoch: int, entries: Sequence[SummaryEntry]) -> bytes:
    header = _HEADER.pack(end_offset, leader_epoch, len(entries))
    parts = [_PREFIX.pack(_VERSION, crc32c(header)), header]
    for first in range(0, len(entries), _BLOCK_ENTRIES):
        block = b"".join(_ENTRY.pack(*entry) for entry in entries[first : first + _BLOCK_ENTRIES])
        parts += block, _CRC.pack(crc32c(block))
    return b"".join(parts)


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
    """All of a file at once."""
    header = decode_header(data, len(data))
    starts = (HEADER_SIZE + number * BLOCK_SIZE for number in range(header.blocks))
    return header, [entry for start in starts for entry in SummaryBlock(data[start : start + BLOCK_SIZE])]


class SummaryBlock:
    """Some entries next to each other; halving it decodes only what it compares."""

    def __init__(self, data: bytes) -> None:
        self._entries = memoryview(data)[: -_CRC.size]
        if crc32c(self._entries) != _CRC.unpack_from(data, len(data) - _CRC.size)[0]:
            raise BadSummary("a block has the wrong CRC32C")

    def __len__(self) -> int:
        return len(self._entries) // _ENTRY.size

    def __getitem__(self, number: int) -> SummaryEntry:
        return SummaryEntry(*_ENTRY.unpack_from(self._entries, number * _ENTRY.size))

    def __iter__(self) -> Iterator[SummaryEntry]:
        return map(SummaryEntry._make, _ENTRY.iter_unpack(self._entries))

    def base_offset(self, number: int) -> int:
        base_offset: int = _LONG.unpack_from(self._entries, number * _ENTRY.size)[0]
        return base_offset

    def running_max(self, number: int) -> int:
        running_max: int = _LONG.unpack_from(self._entries, number * _ENTRY.size + _RUNNING_MAX_AT)[0]
        return running_max
