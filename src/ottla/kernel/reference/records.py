"""Reading the records of a batch: for tools, look-up by time, coordinators that load their state, and consumers."""

from typing import NamedTuple

from ottla.kernel.batch import BatchHeader, Buffer, TimestampType, read_header
from ottla.kernel.errors import CorruptBatch
from ottla.kernel.reference.layout import Span, records_of, spans
from ottla.kernel.reference.varint import read

Headers = tuple[tuple[str, bytes | None], ...]

_TIMESTAMP_MAX = 2**63 - 1
_TIMESTAMP_MIN = -(2**63)


class Record(NamedTuple):
    """A record with its absolute offset and its effective timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def read_records(buffer: Buffer, header: BatchHeader | None = None, position: int = 0) -> list[Record]:
    """All records of the batch at `position`. A control batch's are its control records: see `read_control`."""
    if header is None:
        header = read_header(buffer, position)
    data = records_of(buffer, header, position)
    base_offset = header.base_offset
    stamp = Stamp.of(header)
    return [
        Record(
            base_offset + span.offset_delta,
            stamp.timestamp(span),
            None if span.key_end < 0 else data[span.key : span.key_end],
            None if span.value_end < 0 else data[span.value : span.value_end],
            _headers(data, span) if span.end - span.headers > 1 else (),
        )
        for span in spans(data, header.count)
    ]


def find_time(
    buffer: Buffer, position: int, target_ms: int, start_offset: int = 0, header: BatchHeader | None = None
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record at `start_offset` or later with a timestamp of `target_ms` or later."""
    if header is None:
        header = read_header(buffer, position)
    if header.max_timestamp < target_ms:
        return None
    stamp = Stamp.of(header)
    for span in spans(records_of(buffer, header, position), header.count):
        offset = header.base_offset + span.offset_delta
        timestamp = stamp.timestamp(span)
        if timestamp >= target_ms and offset >= start_offset:
            return offset, timestamp
    return None


class Stamp(NamedTuple):
    """How the timestamps of a batch's records are to be read: one for all of them, or deltas to a base."""

    base: int
    append_time: int | None

    @classmethod
    def of(cls, header: BatchHeader) -> "Stamp":
        by_broker = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        return cls(header.base_timestamp, header.max_timestamp if by_broker else None)

    def timestamp(self, span: Span) -> int:
        if self.append_time is not None:
            return self.append_time
        timestamp = self.base + span.timestamp_delta
        if not _TIMESTAMP_MIN <= timestamp <= _TIMESTAMP_MAX:
            raise CorruptBatch(f"a record's timestamp {timestamp} does not fit 64 bits")
        return timestamp


def _headers(data: bytes, span: Span) -> Headers:
    count, position = read(data, span.headers)
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
        # Brokers store names unseen; one that is not UTF-8 is shown as Java shows it.
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers)
