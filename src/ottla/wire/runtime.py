"""Functions that compiled codecs call for rare or long cases: varints past one byte, arrays of numbers, errors."""

from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct
from typing import Final, NoReturn

from ottla.wire.types import STRING_MAX

ONE_BYTE: Final = tuple(bytes((n,)) for n in range(128))
_TWO_BYTES: Final = Struct(">BB").pack
_THREE_BYTES: Final = Struct(">BBB").pack
_TAGS_MAX: Final = 256
"""No structure of Kafka has more than ten tagged fields, and skipping unknown ones takes time."""
_SMALL_ARRAY: Final = 16  # Up to this length the layout is cached.


class InvalidField(Exception):
    """Bytes or values that are invalid for a field; the text continues a sentence that starts with the field."""


def uvarint_tail(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """The value of a varint whose first byte, over 127, was read already, and the position after it."""
    second = buffer[position]
    if second < 0x80:
        return first - 0x80 + (second << 7), position + 1
    third = buffer[position + 1]
    if third < 0x80:
        return first - 0x4080 + (second << 7) + (third << 14), position + 2
    value = first & 0x7F | (second & 0x7F) << 7 | (third & 0x7F) << 14
    fourth = buffer[position + 2]
    if fourth < 0x80:
        return value | fourth << 21, position + 3
    fifth = buffer[position + 3]
    if fifth > 0x0F:
        raise InvalidField("has a varint that does not fit 32 bits")
    return value | (fourth & 0x7F) << 21 | fifth << 28, position + 4


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return ONE_BYTE[value]
    if value < 0x4000:
        return _TWO_BYTES(value & 0x7F | 0x80, value >> 7)
    if value < 0x20_0000:
        return _THREE_BYTES(value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14)
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_uvarint(value: int) -> bytes:
    """The length prefix of a compact string: its length plus one."""
    if value > STRING_MAX + 1:
        raise InvalidField(f"is {value - 1} bytes long; a string may have {STRING_MAX}")
    return uvarint(value)


def skip_tags(buffer: memoryview, position: int, first: int) -> int:
    """The position after tagged fields, none of which this version knows."""
    count, position = tag_count(buffer, position, first)
    for _ in range(count):
        _, size, position = tag_head(buffer, position)
        position += size
    return position


def tag_count(buffer: memoryview, position: int, first: int) -> tuple[int, int]:
    """The number of tagged fields, and the position after it; its first byte was read already."""
    count = first
    if first > 127:
        count, position = uvarint_tail(buffer, position, first)
    if count * 2 > len(buffer) - position:  # Each has a tag and a size.
        bad_count(count, len(buffer) - position)
    if count > _TAGS_MAX:
        raise InvalidField(f"are {count}; at most {_TAGS_MAX} are read")
    return count, position


def tag_head(buffer: memoryview, position: int) -> tuple[int, int, int]:
    """Tag, size and position of a tagged field's contents, which are complete."""
    tag = buffer[position]
    position += 1
    if tag > 127:
        tag, position = uvarint_tail(buffer, position, tag)
    size = buffer[position]
    position += 1
    if size > 127:
        size, position = uvarint_tail(buffer, position, size)
    if position + size > len(buffer):
        bad_length(size, len(buffer) - position)
    return tag, size, position


@cache
def number_reader(code: str) -> Callable[[memoryview, int, int], list[int]]:
    """A function (buffer, position, count) that reads an array of numbers whose bytes are known to be there."""
    small = tuple(Struct(f">{n}{code}").unpack_from for n in range(_SMALL_ARRAY + 1))

    def read(buffer: memoryview, position: int, count: int) -> list[int]:
        unpack = small[count] if count <= _SMALL_ARRAY else Struct(f">{count}{code}").unpack_from
        return list(unpack(buffer, position))

    return read


@cache
def number_writer(code: str) -> Callable[[Sequence[int]], bytes]:
    small = tuple(Struct(f">{n}{code}").pack for n in range(_SMALL_ARRAY + 1))

    def write(values: Sequence[int]) -> bytes:
        count = len(values)
        return (small[count] if count <= _SMALL_ARRAY else Struct(f">{count}{code}").pack)(*values)

    return write


def read_uuids(buffer: memoryview, position: int, count: int) -> list[bytes]:
    return [buffer[at : at + 16].tobytes() for at in range(position, position + 16 * count, 16)]


def write_uuids(values: Sequence[bytes]) -> bytes:
    for value in values:
        if len(value) != 16:
            bad_uuid(value)
    return b"".join(values)


def bad_length(length: int, left: int) -> NoReturn:
    if length == -1:
        raise InvalidField("is null, which this version does not allow")
    if length < 0:
        raise InvalidField(f"has a length of {length}")
    if length <= left:
        raise InvalidField(f"is {length} bytes long; a string may have {STRING_MAX}")
    raise InvalidField(f"has a length of {length} with {left} bytes left")


def bad_count(count: int, left: int) -> NoReturn:
    if count == -1:
        raise InvalidField("is null, which this version does not allow")
    raise InvalidField(f"has a count of {count} with {left} bytes left")


def takes_too_much() -> NoReturn:
    raise InvalidField("has more elements than there is memory for in a request")


def bad_tag_size(size: int, used: int) -> NoReturn:
    raise InvalidField(f"is a tagged field of {size} bytes, of which {used} have a meaning")


def bad_uuid(value: bytes) -> NoReturn:
    raise InvalidField(f"is an id of {len(value)} bytes, not 16")


def not_in_version(value: object) -> NoReturn:
    raise InvalidField(f"holds {value!r}, which this version cannot carry")
