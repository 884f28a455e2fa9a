"""Variable-length integers: 7 bits a byte, least significant first, signed ones zigzag (0, -1, 1, -2 as 0, 1, 2, 3).

Rule 1: at most 5 bytes for 32 bits and 10 for 64; longer, or a value past the width, is corrupt.
Rule 2: reading past the end raises IndexError. The loops over records read the one- and two-byte forms, nearly all
        there are, in line, and catch it once.
"""

from typing import Final

from ottla.kernel.batch import Buffer
from ottla.kernel.errors import CorruptBatch

_ONE_BYTE: Final = tuple(bytes((unsigned,)) for unsigned in range(128))
_TWO_BYTES_END: Final = 1 << 14
_WIDTH: Final = {5: 32, 10: 64}


def encode(value: int) -> bytes:
    """`value`, of 64 bits at most, as a zigzag varint."""
    unsigned = value << 1 if value >= 0 else ~(value << 1)
    if unsigned < 128:
        return _ONE_BYTE[unsigned]
    if unsigned < _TWO_BYTES_END:
        return bytes((unsigned & 127 | 128, unsigned >> 7))
    out = bytearray()
    while unsigned > 127:
        out.append(unsigned & 127 | 128)
        unsigned >>= 7
    out.append(unsigned)
    return bytes(out)


def read_unsigned(data: Buffer, position: int, bytes_max: int = 5) -> tuple[int, int]:
    """The varint at `position` without zigzag decoding, and the position after it."""
    value = data[position]
    if value < 128:
        return value, position + 1
    byte = data[position + 1]
    if byte < 128:
        return value & 127 | byte << 7, position + 2
    value = value & 127 | (byte & 127) << 7
    for more in range(2, bytes_max):
        byte = data[position + more]
        value |= (byte & 127) << 7 * more
        if byte < 128:
            if value >> _WIDTH[bytes_max]:
                raise CorruptBatch(f"the varint at {position} of the records exceeds {_WIDTH[bytes_max]} bits")
            return value, position + more + 1
    raise CorruptBatch(f"the varint at {position} of the records is longer than {bytes_max} bytes")


def read(data: Buffer, position: int) -> tuple[int, int]:
    """The zigzag varint of 32 bits at `position`, and the position after it."""
    unsigned, position = read_unsigned(data, position)
    return (unsigned >> 1) ^ -(unsigned & 1), position
