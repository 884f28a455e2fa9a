"""Checks runs of records with equal sizes column by column.

Many producers send records of one size. While lengths and sizes are equal, every byte that a walk reads is at a fixed
distance from the same byte of the previous record: a slice with that step is a column, compared in one call. That costs
a hundredth of a walk in Python.

Rule 1: a run is accepted whole or not at all. A run that is not accepted is not an error: it is walked record by
        record, which also finds the error message.
Rule 2: only records without headers whose timestamp delta takes one byte are accepted; their offset deltas count up.
"""

from typing import Final, NamedTuple

from ottla.kernel.errors import CorruptBatch
from ottla.kernel.reference.varint import read_unsigned

_RUN_MIN: Final = 4  # Shorter runs are walked in the same time.
_ONE_BYTE: Final = 64  # Smaller offset deltas take one byte as a varint.
_TWO_BYTES: Final = 8192  # Smaller offset deltas take at most two bytes.
_OFFSETS: Final = bytes(range(0, 128, 2))
_OFFSETS_LOW: Final = bytes(2 * delta & 127 | 128 for delta in range(_ONE_BYTE, _TWO_BYTES))
_OFFSETS_HIGH: Final = bytes(2 * delta >> 7 for delta in range(_ONE_BYTE, _TWO_BYTES))

DELTA_MIN: Final = -64
DELTA_MAX: Final = 63
"""The largest timestamp delta that takes one byte."""


class Skipped(NamedTuple):
    """The records accepted so far: their number, the position after them, and their largest timestamp delta."""

    records: int
    position: int
    latest: int


def skip_alike(data: bytes, count: int, *, key_needed: bool) -> Skipped:
    """Accept runs from the start of `data`, which should hold `count` records."""
    done = Skipped(0, 0, DELTA_MIN)
    try:
        while count - done.records >= _RUN_MIN and done.records < _TWO_BYTES:
            limit = _ONE_BYTE if done.records < _ONE_BYTE else _TWO_BYTES
            following = _run(data, done, min(count, limit), key_needed)
            if following is None:
                break
            done = following
    except (IndexError, CorruptBatch):
        pass  # The first record of a run is incomplete or has another layout. The caller walks it.
    return done


def _run(data: bytes, done: Skipped, until: int, key_needed: bool) -> Skipped | None:
    """Accept one run after `done`, up to the record number `until`; None if it is not accepted."""
    start, length_end = done.position, done.position + 1
    length = data[start]
    if length > 127:
        length, length_end = read_unsigned(data, start)
    timestamp = length_end + 1  # After the attributes, which are unused.
    offset = timestamp + 1
    key_size_at = offset + (1 if done.records < _ONE_BYTE else 2)
    key_size, key = read_unsigned(data, key_size_at)
    value_size_at = key if key_size & 1 else key + (key_size >> 1)
    value_size, value = read_unsigned(data, value_size_at)
    headers = value if value_size & 1 else value + (value_size >> 1)
    end, records = headers + 1, until - done.records
    step = end - start
    if length != 2 * (end - length_end) or start + records * step > len(data) or (key_needed and key_size & 1):
        return None
    last = (records - 1) * step + 1

    same = (*range(start, length_end), *range(key_size_at, key), *range(value_size_at, value))
    if any(data[at : at + last : step].count(data[at]) != records for at in same):
        return None
    timestamps = data[timestamp : timestamp + last : step]
    latest = max(timestamps)
    if latest & 0x81 or data[headers : headers + last : step].count(0) != records:  # An odd delta is negative.
        return None
    if not _counts_up(data, offset, step, done.records, until):
        return None
    return Skipped(until, start + records * step, max(done.latest, latest >> 1))


def _counts_up(data: bytes, at: int, step: int, first: int, until: int) -> bool:
    """Whether the offset deltas are `first` and the numbers after it."""
    last = (until - first - 1) * step + 1
    if first < _ONE_BYTE:
        return data[at : at + last : step] == _OFFSETS[first:until]
    low, high = first - _ONE_BYTE, until - _ONE_BYTE
    return (
        data[at : at + last : step] == _OFFSETS_LOW[low:high]
        and data[at + 1 : at + 1 + last : step] == _OFFSETS_HIGH[low:high]
    )
