"""Where the fields of the records in a batch lie.

    length varint | attributes 1 | timestamp delta varlong | offset delta varint |
    key length varint, key | value length varint, value | header count varint, (name length, name, value length, value)*

Rule 1: a length of -1 (any negative one) means null; a header's name is never null.
Rule 2: a record's length is exactly what its fields take, and `count` records exactly what the batch holds.
Rule 3: nothing is allocated by what a count or a length claims; too large a claim runs into the end of the bytes.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.kernel.batch import HEADER_SIZE, BatchHeader, Buffer
from ottla.kernel.errors import CorruptBatch
from ottla.kernel.reference.compress import decompress
from ottla.kernel.reference.varint import read_unsigned

_SMALLEST_RECORD: Final = 7  # length, attributes, two deltas, two null lengths, no headers


class Span(NamedTuple):
    """A record as positions in the uncompressed records of its batch."""

    timestamp_delta: int
    offset_delta: int
    after_timestamp: int  # From here to `end` nothing depends on the batch's base timestamp.
    key: int
    key_end: int  # -1: the key is null.
    value: int
    value_end: int  # -1: the value is null.
    headers: int  # Where the count of headers stands.
    end: int


def records_of(buffer: Buffer, header: BatchHeader, position: int = 0) -> bytes:
    """The uncompressed records of the batch at `position`: bytes, because Python reads those fastest."""
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatch(f"the batch takes {header.size} bytes, {len(buffer) - position} are left at {position}")
    return decompress(header.codec, memoryview(buffer)[position + HEADER_SIZE : end])


def check_count(data: bytes, count: int) -> None:
    """Refuse a count of records that `data` cannot hold, before anything relies on it."""
    if count < 0 or count * _SMALLEST_RECORD > len(data):
        raise CorruptBatch(f"the batch declares {count} records in {len(data)} bytes")
    if not count and data:
        raise CorruptBatch(f"the batch declares no records and holds {len(data)} bytes of them")


def spans(data: bytes, count: int) -> Iterator[Span]:
    """The `count` records that make up `data`. Raises CorruptBatch at the first that is not sound."""
    check_count(data, count)
    position = 0
    try:
        for index in range(count):
            length, position = read_unsigned(data, position)
            end = position + (length >> 1)
            delta, after_timestamp = read_unsigned(data, position + 1, 10)
            offset, position = read_unsigned(data, after_timestamp)
            size, key = read_unsigned(data, position)
            key_end = -1 if size & 1 else key + (size >> 1)
            size, value = read_unsigned(data, key if size & 1 else key_end)
            value_end = -1 if size & 1 else value + (size >> 1)
            headers = value if size & 1 else value_end
            position = skip_headers(data, headers)
            if position != end or length & 1:
                raise wrong_length(index, length, position - end)
            yield Span(
                (delta >> 1) ^ -(delta & 1),
                (offset >> 1) ^ -(offset & 1),
                after_timestamp,
                key,
                key_end,
                value,
                value_end,
                headers,
                end,
            )
    except IndexError:
        raise ends_early(data, count) from None
    if position != len(data):
        raise left_over(data, count, position)


def skip_headers(data: bytes, position: int) -> int:
    """The position after the headers whose count stands at `position`."""
    count, position = read_unsigned(data, position)
    if count & 1:
        raise CorruptBatch(f"a record declares {~(count >> 1)} headers")
    for _ in range(count >> 1):
        size, position = read_unsigned(data, position)
        if size & 1:
            raise CorruptBatch("a record header has no name")
        size, position = read_unsigned(data, position + (size >> 1))
        if not size & 1:
            position += size >> 1
    return position


def wrong_length(index: int, length: int, beyond: int) -> CorruptBatch:
    declared = (length >> 1) ^ -(length & 1)
    return CorruptBatch(f"record {index} declares {declared} bytes, its fields end {beyond:+} bytes from there")


def ends_early(data: bytes, count: int) -> CorruptBatch:
    return CorruptBatch(f"the batch declares {count} records, its {len(data)} bytes of them end inside one")


def left_over(data: bytes, count: int, position: int) -> CorruptBatch:
    return CorruptBatch(f"{len(data) - position} bytes follow the last of the {count} records the batch declares")
