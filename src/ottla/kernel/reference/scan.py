"""Finds the batches in a part of a log: for recovery, replication, compaction, `ottla log dump`.

Rule 1: any bytes have a result; scanning never raises.
Rule 2: the result says up to where the bytes are valid (`consumed`) and why they end: a fault, or just the end of the
        bytes.
Rule 3: the base offset and the leader epoch are outside the checksum, so a flipped bit there is not detected here. The
        log detects it: offsets must rise within the segment's range, and epochs never fall.
"""

from struct import Struct
from typing import Final

from ottla.kernel.batch import (
    HEADER,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    BatchHeader,
    Buffer,
    header_fault,
)
from ottla.kernel.reference.checksum import batch_crc, crc_fault
from ottla.kernel.values import Scan

_LENGTH_TO_MAGIC: Final = Struct(">iib")  # length, leader epoch, magic


def scan(buffer: Buffer, *, check_crc: bool = True) -> Scan:
    """The consecutive batches from the start of `buffer`."""
    view = memoryview(buffer)
    end = len(view)
    headers: list[BatchHeader] = []
    position = needed = 0
    fault: str | None = None
    unpack, make = HEADER.unpack_from, BatchHeader._make
    while end - position > MAGIC_AT:
        length, _, magic = _LENGTH_TO_MAGIC.unpack_from(view, position + LENGTH_AT)
        fault = header_fault(length, magic)
        if fault is not None:
            break
        size = length + LOG_OVERHEAD
        if size > end - position:
            needed = size
            break
        header = make(unpack(view, position))
        if check_crc:
            fault = crc_fault(header, batch_crc(view, position, size))
            if fault is not None:
                break
        headers.append(header)
        position += size
    return Scan(headers, position, needed, fault)
