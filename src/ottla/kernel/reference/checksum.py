"""CRC32C of a batch: over everything from the attributes to its end."""

from crc32c import crc32c

from ottla.kernel.batch import ATTRIBUTES_AT, CRC_AT, BatchHeader, Buffer


def batch_crc(buffer: Buffer, position: int, size: int) -> int:
    """The CRC computed for the batch of `size` bytes at `position`."""
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : position + size])


def crc_ok(buffer: Buffer, position: int, size: int) -> bool:
    """Whether the batch of `size` bytes at `position` has the correct CRC."""
    at = position + CRC_AT
    return int.from_bytes(buffer[at : at + 4], "big") == batch_crc(buffer, position, size)


def crc_fault(header: BatchHeader, computed: int) -> str | None:
    """The error message for a wrong CRC; None if it is correct."""
    if computed == header.crc:
        return None
    return f"the batch of {header.size} bytes carries CRC {header.crc:08x}, its bytes give {computed:08x}"
