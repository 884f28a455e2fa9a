"""The entries of the three indexes of a segment, as bytes.

`.index`      relative offset (4), position (4): the last offset of a batch and where that batch begins
`.timeindex`  timestamp (8), relative offset (4): the largest timestamp so far and the last offset of its batch
`.txnindex`   version (2), producer id, first offset, last offset, last stable offset (8 each): an aborted transaction

Rule 1: offsets, positions and timestamps grow strictly, so each file can be bisected.
Rule 2: an entry is a hint. A look-up checks that the batch it finds matches the entry.
"""

from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

Buffer = bytes | bytearray | memoryview

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
_TXN_ENTRY = Struct(">hqqqq")
TXN_ENTRY_SIZE = _TXN_ENTRY.size
_TXN_VERSION = 0

RELATIVE_OFFSET_MAX = 2**31 - 1


class BadIndex(ValueError):
    """The bytes are not a valid index; it has to be rebuilt from the log."""


class AbortedTxn(NamedTuple):
    """An entry of the transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """The last stable offset when the marker was written. No later entry begins before it."""

    def encode(self) -> bytes:
        return _TXN_ENTRY.pack(_TXN_VERSION, *self)


def decode_aborted(data: Buffer) -> list[AbortedTxn]:
    if len(data) % TXN_ENTRY_SIZE:
        raise BadIndex(f"{len(data)} bytes are no multiple of {TXN_ENTRY_SIZE}")
    aborted: list[AbortedTxn] = []
    for version, *fields in _TXN_ENTRY.iter_unpack(data):
        if version != _TXN_VERSION:
            raise BadIndex(f"aborted transaction of version {version}; {_TXN_VERSION} is known")
        entry = AbortedTxn(*fields)
        if aborted and entry.last_offset <= aborted[-1].last_offset:
            raise BadIndex(f"marker at offset {entry.last_offset} follows the one at {aborted[-1].last_offset}")
        aborted.append(entry)
    return aborted


def overlapping(aborted: list[AbortedTxn], first_offset: int, upper_offset: int) -> Iterator[AbortedTxn]:
    """The transactions that overlap the offsets from `first_offset` up to `upper_offset` (exclusive)."""
    return (txn for txn in aborted if txn.last_offset >= first_offset and txn.first_offset < upper_offset)


def count_at_most(entries: Buffer, entry: Struct, column: int, value: int) -> int:
    """The number of packed entries, sorted by `column`, with `column` <= value.

    Entries are roughly evenly spaced, so the first guess is by interpolation.
    """
    size, unpack = entry.size, entry.unpack_from
    count = len(entries) // size
    if not count or value < (first := unpack(entries)[column]):
        return 0
    if value >= (last := unpack(entries, (count - 1) * size)[column]):
        return count
    likely: int = 1 + (value - first) * (count - 1) // (last - first)
    if unpack(entries, likely * size)[column] <= value:
        low, high = likely + 1, count
    elif unpack(entries, (likely - 1) * size)[column] <= value:
        return likely
    else:
        low, high = 0, likely
    return bisect_right(range(count), value, low, high, key=lambda i: unpack(entries, i * size)[column])
