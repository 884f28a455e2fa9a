"""Builds record batches.

Rule 1: the bytes equal those of Kafka's own builder for the same records: the base timestamp is the first record's (or
        the delete horizon), the max timestamp the largest (or the append time), attributes of records are 0.
Rule 2: offsets rise strictly from the base offset on; gaps are allowed, as compaction makes them.
Rule 3: a mistake of the caller is a ValueError: nothing here comes from outside.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final

from crc32c import crc32c

from ottla.kernel.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Codec,
    TimestampType,
    attributes_of,
)
from ottla.kernel.control import ControlType, control_key, end_txn_value
from ottla.kernel.reference.compress import compress
from ottla.kernel.reference.layout import wrap64
from ottla.kernel.reference.varint import encode
from ottla.kernel.values import Record

_HEAD: Final = Struct(">qiibI")  # base offset, length, leader epoch, magic, crc
_CHECKED: Final = Struct(">hiqqqhii")  # attributes to count: what the CRC covers before the records
_DELTA_MAX: Final = 2**31 - 1
_NO_HEADERS: Final = encode(0)
_NULL: Final = encode(-1)
_RECORDS_SIZE_MAX: Final = 2**31 - 1 - (HEADER_SIZE - LOG_OVERHEAD)

Headers = Sequence[tuple[str, bytes | None]]
Draft = tuple[int, bytes | None, bytes | None, Headers, *tuple[Any, ...]]
"""Timestamp, key, value and headers of a record without an offset, and further values that the caller keeps there."""


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    append_time_ms: int = NO_TIMESTAMP,
    delete_horizon_ms: int | None = None,
    last_offset: int | None = None,
) -> bytes:
    """A batch of `records` at their offsets. Without `base_offset` the first record's offset is the base."""
    listed = list(records)
    if not listed:
        raise ValueError("a batch needs a record")
    if base_offset is None:
        base_offset = listed[0].offset
    builder = BatchBuilder(base_offset, base_timestamp=delete_horizon_ms)
    for record in listed:
        builder.append_at(record.offset - base_offset, record.timestamp, record.key, record.value, record.headers)
    return builder.build(
        codec=codec,
        level=level,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        attributes=attributes_of(
            codec,
            timestamp_type,
            transactional=transactional,
            control=control,
            delete_horizon=delete_horizon_ms is not None,
        ),
        append_time_ms=append_time_ms if timestamp_type is TimestampType.LOG_APPEND_TIME else None,
        last_offset_delta=None if last_offset is None else last_offset - base_offset,
    )


def build_end_txn_marker(
    control_type: ControlType,
    coordinator_epoch: int,
    *,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The control batch that commits or aborts a transaction in a partition."""
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise ValueError(f"a {control_type.name} record does not end a transaction")
    marker = Record(base_offset, timestamp, control_key(control_type), end_txn_value(coordinator_epoch))
    return build_batch(
        [marker],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


class BatchBuilder:
    """A batch that grows record by record."""

    def __init__(self, base_offset: int = 0, *, base_timestamp: int | None = None) -> None:
        self.base_offset = base_offset
        self.count = 0
        self.records_size = 0  # Bytes of the records before compression.
        self.last_offset_delta = -1
        self.max_timestamp = NO_TIMESTAMP
        self._base_timestamp = base_timestamp
        self._parts: list[bytes] = []

    @property
    def size(self) -> int:
        """Size of the batch if it were built now without compression."""
        return HEADER_SIZE + self.records_size

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
        """Add a record at the next offset; returns its size in bytes."""
        return self.append_at(self.last_offset_delta + 1, timestamp, key, value, headers)

    def append_at(
        self, offset_delta: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> int:
        """Add a record at a later offset than the last one's; returns its size in bytes."""
        return self._append(offset_delta, timestamp, key, value, encode_headers(headers))

    def append_encoded(self, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes) -> int:
        """Add a record at the next offset whose headers, with their count, are encoded already."""
        return self._append(self.last_offset_delta + 1, timestamp, key, value, headers)

    def _append(self, offset_delta: int, timestamp: int, key: bytes | None, value: bytes | None, headers: bytes) -> int:
        if not self.last_offset_delta < offset_delta <= _DELTA_MAX:
            raise ValueError(f"offset delta {offset_delta} does not follow {self.last_offset_delta}")
        if timestamp < NO_TIMESTAMP:
            raise ValueError(f"timestamp {timestamp} is negative")
        rest = b"".join(
            (
                encode(offset_delta),
                *((_NULL,) if key is None else (encode(len(key)), key)),
                *((_NULL,) if value is None else (encode(len(value)), value)),
                headers,
            )
        )
        return self.append_raw(offset_delta, timestamp, rest)

    def extend(self, records: Iterable[Draft]) -> None:
        """Add records at the next offsets."""
        for timestamp, key, value, headers, *_ in records:
            self.append(timestamp, key, value, headers)

    def append_raw(self, offset_delta: int, timestamp: int, rest: bytes) -> int:
        """Add a record from an existing batch: `rest` are its bytes from the offset delta on."""
        base = timestamp if self._base_timestamp is None else self._base_timestamp
        delta = encode(wrap64(timestamp - base))
        body_size = 1 + len(delta) + len(rest)
        length = encode(body_size)
        taken = len(length) + body_size
        if self.records_size + taken > _RECORDS_SIZE_MAX:
            held = self.records_size
            raise ValueError(f"a record of {taken} bytes after {held}: a batch holds at most {_RECORDS_SIZE_MAX}")
        self._base_timestamp = base
        self._parts += (length, b"\0", delta, rest)
        self.count += 1
        self.last_offset_delta = offset_delta
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.records_size += taken
        return taken

    def build(
        self,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        leader_epoch: int = NO_LEADER_EPOCH,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        attributes: int | None = None,
        append_time_ms: int | None = None,
        last_offset_delta: int | None = None,
    ) -> bytes:
        """The batch. `attributes` default to those of plain data in `codec`."""
        records = b"".join(self._parts)
        return assemble(
            records if codec is Codec.NONE else compress(codec, records, level),
            base_offset=self.base_offset,
            leader_epoch=leader_epoch,
            attributes=codec if attributes is None else attributes,
            last_offset_delta=self.last_offset_delta if last_offset_delta is None else last_offset_delta,
            base_timestamp=NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
            max_timestamp=self.max_timestamp if append_time_ms is None else append_time_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            count=self.count,
        )


def assemble(
    records: bytes,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    count: int,
) -> bytes:
    """A batch of records that are already encoded and compressed."""
    checked = _CHECKED.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    length = HEADER_SIZE - LOG_OVERHEAD + len(records)
    head = _HEAD.pack(base_offset, length, leader_epoch, MAGIC, crc32c(records, crc32c(checked)))
    return b"".join((head, checked, records))


def encode_headers(headers: Headers) -> bytes:
    """The encoded headers of a record, preceded by their number."""
    if not headers:
        return _NO_HEADERS
    parts = [encode(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (encode(len(encoded)), encoded)
        parts += (_NULL,) if value is None else (encode(len(value)), value)
    return b"".join(parts)
