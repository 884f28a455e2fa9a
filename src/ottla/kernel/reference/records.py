"""Reads the records of a batch: for tools, look-ups by time, loading coordinators, and consumers."""

from ottla.kernel.batch import BatchHeader, Buffer, read_header
from ottla.kernel.reference.layout import records_of, spans
from ottla.kernel.reference.varint import read
from ottla.kernel.values import Headers, Record


def read_records(buffer: Buffer, header: BatchHeader | None = None, position: int = 0) -> list[Record]:
    """All records of the batch at `position`. A control batch's are its control records: see `read_control`."""
    if header is None:
        header = read_header(buffer, position)
    return records_in(records_of(buffer, header, position), header)


def records_in(data: bytes, header: BatchHeader) -> list[Record]:
    """The records in `data`, the uncompressed records of `header`."""
    return [
        Record(
            offset,
            timestamp,
            None if key_end < 0 else data[key:key_end],
            None if value_end < 0 else data[value:value_end],
            _headers(data, headers) if end - headers > 1 else (),
        )
        for offset, timestamp, _, key, key_end, value, value_end, headers, end in spans(data, header)
    ]


def find_time(
    buffer: Buffer, position: int, target_ms: int, start_offset: int = 0, header: BatchHeader | None = None
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record at `start_offset` or later with a timestamp of at least `target_ms`."""
    if header is None:
        header = read_header(buffer, position)
    if header.max_timestamp < target_ms:
        return None
    for offset, timestamp, *_ in spans(records_of(buffer, header, position), header):
        if timestamp >= target_ms and offset >= start_offset:
            return offset, timestamp
    return None


def _headers(data: bytes, position: int) -> Headers:
    count, position = read(data, position)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = read(data, position)
        name = data[position : position + size]
        position += size
        size, position = read(data, position)
        value = None
        if size >= 0:
            value = data[position : position + size]
            position += size
        # Brokers do not check names; invalid UTF-8 is replaced, as in Java.
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers)
