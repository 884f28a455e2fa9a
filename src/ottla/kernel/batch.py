"""The header of a record batch, format version 2.

    base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 | last offset delta 4 |
    base timestamp 8 | max timestamp 8 | producer id 8 | producer epoch 2 | base sequence 4 | count 4 | records

Rule 1: `length` counts what follows it, so a batch takes 12 bytes more.
Rule 2: the CRC32C covers everything after itself. The base offset and the leader epoch lie before it: the broker writes
        them into the batch it received without touching the records.
Rule 3: offsets and sequences are counted from the base; compaction leaves gaps and keeps the last offset delta, because
        the producer's last sequence is derived from it. So `count` may be less than `last_offset_delta + 1`, even 0.
Rule 4: with attribute bit 6 the base timestamp is the delete horizon: the time from which the tombstones (or the
        transaction marker) in the batch may be removed. Timestamps of records are deltas to it all the same.
Rule 5: under LogAppendTime every record's timestamp is the batch's max timestamp, whatever its delta says.
"""

from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is an exception class in spite of its name
from typing import Final, NamedTuple

from ottla.kernel.errors import CorruptBatch

Buffer = bytes | bytearray | memoryview

MAGIC: Final = 2
HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
LOG_OVERHEAD: Final = 12  # base offset and length, which `length` does not include
LENGTH_AT: Final = 8
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21  # The first byte under the CRC.
_ATTRIBUTES_LOW_AT: Final = 22

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

_MAX_SEQUENCE: Final = 2**31 - 1


class Codec(IntEnum):
    """The compression of a batch; the numbers are those of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS: Final = tuple(Codec)


class TimestampType(IntEnum):
    """Whether the producer or the appending broker sets the timestamps."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The fields of a header in the order of their bytes."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # Kafka's name; hides tuple.count, which is not used.

    def numbered(self, base_offset: int, leader_epoch: int) -> "BatchHeader":
        """The same header with the leader's fields set. (`_replace` takes three times as long.)"""
        return tuple.__new__(BatchHeader, (base_offset, self.length, leader_epoch, *self[3:]))

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise CorruptBatch(f"the batch at offset {self.base_offset} names compression {number}; 0 to 4 are known")
        return _CODECS[number]  # Codec(number) costs several times as much, for every batch.

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_FLAG else TimestampType.CREATE_TIME

    @property
    def append_time(self) -> int:
        """The broker's time when the batch was appended; -1 if the records carry their own timestamps."""
        return self.max_timestamp if self.attributes & TIMESTAMP_TYPE_FLAG else -1

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer(self) -> bool:
        """Any id below 0 means no producer, as in Kafka."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def increment_sequence(sequence: int, by: int) -> int:
    """Sequences wrap from 2^31-1 to 0."""
    return (sequence + by) & _MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Checks neither the records nor the checksum: see `scan` and `crc_ok`."""
    try:
        # Equivalent to `BatchHeader._make`, in a third of its time; runs for every batch.
        header = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
    except StructError:
        left = max(len(buffer) - position, 0)
        raise CorruptBatch(f"a batch header takes {HEADER_SIZE} bytes, {left} are left at {position}") from None
    if header.magic != MAGIC or header.length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptBatch(f"{header_fault(header.length, header.magic)} (at {position})")
    return header


def header_fault(length: int, magic: int) -> str | None:
    """Why a batch of version 2 cannot have this length and magic; None if it can."""
    if magic != MAGIC:
        return f"magic is {magic}; only record batches of magic {MAGIC} are supported"
    if length < HEADER_SIZE - LOG_OVERHEAD:
        return f"length is {length}; the header alone takes {HEADER_SIZE - LOG_OVERHEAD}"
    return None


def is_transactional(buffer: Buffer) -> bool:
    """Whether the attributes mark a batch as transactional. Called for every batch before it is checked."""
    return len(buffer) > _ATTRIBUTES_LOW_AT and buffer[_ATTRIBUTES_LOW_AT] & TRANSACTIONAL_FLAG != 0


def pack_header(header: BatchHeader) -> bytes:
    """The bytes of `header` unchanged: the caller sets length and CRC."""
    return HEADER.pack(*header)


def attributes_of(
    codec: Codec,
    timestamp_type: TimestampType,
    *,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: bool = False,
) -> int:
    return (
        codec
        | (TIMESTAMP_TYPE_FLAG if timestamp_type else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
        | (DELETE_HORIZON_FLAG if delete_horizon else 0)
    )
