"""Where the fields of the records in a batch lie.

    length varint | attributes 1 | timestamp delta varlong | offset delta varint |
    key length varint, key | value length varint, value | header count varint, (name length, name, value length, value)*

Rule 1: a length of -1 (any negative one) means null; a header's name is never null.
Rule 2: a record's length is exactly what its fields take, and `count` records exactly what the batch holds.
Rule 3: a timestamp is the base timestamp plus the delta in 64 bits, as Java adds them: any two timestamps have a delta.
        Under LogAppendTime it is the batch's max timestamp.
Rule 4: nothing is allocated by what a count or a length claims; too large a claim runs into the end of the bytes.
"""

from collections.abc import Iterator
from typing import Final

from ottla.kernel.batch import HEADER_SIZE, BatchHeader, Buffer, TimestampType
from ottla.kernel.errors import CorruptBatch
from ottla.kernel.reference.compress import decompress
from ottla.kernel.reference.varint import read_unsigned

TIMESTAMP_MAX: Final = 2**63 - 1
TIMESTAMP_MIN: Final = -(2**63)
_BASE_OFFSET_MAX: Final = 2**63 - 1 - 2**31  # Leaves space for any delta.


# A record as its absolute offset, its effective timestamp, and positions in the uncompressed records of its batch:
#   after_timestamp    from here to `end` nothing depends on the batch's base timestamp
#   key, key_end       the end is -1 if the key is null; the same for the value
#   headers            where their count stands
#   end
# A bare tuple in this order: naming its members would cost as much again as finding them.
Span = tuple[int, int, int, int, int, int, int, int, int]


def records_of(buffer: Buffer, header: BatchHeader, position: int = 0) -> bytes:
    """The uncompressed records of the batch at `position`, as bytes, which Python reads fastest."""
    end = position + header.size
    if end > len(buffer):
        raise CorruptBatch(f"the batch takes {header.size} bytes, {len(buffer) - position} are left at {position}")
    return decompress(header.codec, memoryview(buffer)[position + HEADER_SIZE : end])


def check_claims(header: BatchHeader) -> None:
    """Raises CorruptBatch for a header that cannot be right for any records."""
    if header.count < 0:
        raise CorruptBatch(f"the batch declares {header.count} records")
    if not 0 <= header.base_offset <= _BASE_OFFSET_MAX:
        raise CorruptBatch(f"base offset is {header.base_offset}; offsets are numbers from 0 to {_BASE_OFFSET_MAX}")


def spans(data: bytes, header: BatchHeader) -> Iterator[Span]:
    """The records in `data`, the uncompressed records of `header`. Raises CorruptBatch at the first invalid one."""
    count, size = header.count, len(data)
    check_claims(header)
    base_offset, base_timestamp, timestamp = header.base_offset, header.base_timestamp, header.max_timestamp
    by_producer = header.timestamp_type is TimestampType.CREATE_TIME
    position = 0
    try:
        for index in range(count):
            length, position = data[position], position + 1
            if length > 127:
                length, position = read_unsigned(data, position - 1)
            end = position + (length >> 1)
            delta, position = data[position + 1], position + 2
            if delta > 127:
                delta, position = read_unsigned(data, position - 1, 10)
            after_timestamp = position
            offset, position = data[position], position + 1
            if offset > 127:
                offset, position = read_unsigned(data, position - 1)
            key_size, position = data[position], position + 1
            if key_size > 127:
                key_size, position = read_unsigned(data, position - 1)
            key, key_end = position, -1
            if not key_size & 1:
                key_end = position = position + (key_size >> 1)
            value_size, position = data[position], position + 1
            if value_size > 127:
                value_size, position = read_unsigned(data, position - 1)
            value, value_end = position, -1
            if not value_size & 1:
                value_end = position = position + (value_size >> 1)
            headers = position
            position = position + 1 if data[position] == 0 else skip_headers(data, position)
            if position != end or length & 1:
                raise wrong_length(index, length, position - end)
            if by_producer:
                timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))
                if not TIMESTAMP_MIN <= timestamp <= TIMESTAMP_MAX:
                    timestamp = wrap64(timestamp)
            offset = base_offset + ((offset >> 1) ^ -(offset & 1))
            yield offset, timestamp, after_timestamp, key, key_end, value, value_end, headers, end
    except IndexError:
        raise ends_early(data, count) from None
    if position != size:
        raise wrong_end(data, count, position)


def wrap64(number: int) -> int:
    """`number` wrapped to a signed 64-bit integer."""
    return (number - TIMESTAMP_MIN) % 2**64 + TIMESTAMP_MIN


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


def wrong_end(data: bytes, count: int, position: int) -> CorruptBatch:
    """The error for a last record that does not end at the end of `data`."""
    if position > len(data):
        return ends_early(data, count)
    return CorruptBatch(f"{len(data) - position} bytes follow the last of the {count} records the batch declares")
