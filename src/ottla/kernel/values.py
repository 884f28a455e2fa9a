"""What the kernel's functions take and answer, whichever implementation runs."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.kernel.batch import BatchHeader, Buffer, Codec, TimestampType

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record with its absolute offset and its effective timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Scan(NamedTuple):
    """What a stretch of bytes holds."""

    headers: list[BatchHeader]
    consumed: int  # Bytes of whole, valid batches from the start.
    needed: int  # Size of the batch that begins at `consumed` and does not end here; 0 if not even that can be told.
    fault: str | None  # Why no valid batch begins at `consumed`; None: the bytes merely end.


class ProduceRules(NamedTuple):
    """The settings of a topic that decide what may be appended to it; defaults are Kafka's."""

    compacted: bool = False
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    codec: Codec | None = None  # None: as the producer compressed it.
    level: int | None = None  # Used only when a batch is compressed here.
    max_message_bytes: int | None = None  # None: any size.
    from_client: bool = True  # False: a coordinator of this broker appends; rule 1 is not for it.
    at_once_max: int | None = None  # How many bytes of records may be checked; more raises `TakesLong`.


class Checked(NamedTuple):
    """A batch fit to be stamped and appended."""

    batch: memoryview  # The buffer it came in, unless it was rebuilt.
    header: BatchHeader
    max_timestamp: int
    # What the time index gets beside the max timestamp: the batch's last offset, not that of the record which has it,
    # since followers and recovery look at headers only. -1 without a timestamp.
    offset_delta_of_max_timestamp: int
    recompressed: bool


class Room(NamedTuple):
    """What still fits into a segment."""

    bytes: int
    batches: int
    latest_timestamp: int
    last_offset: int


class Exchange(NamedTuple):
    """Produce requests that are alike, and their answers, but for what changes from one to the next."""

    pattern: bytes  # API key and version, and what stands between the correlation id and the length of the records.
    answer: bytes  # With its size; what changes is written into a copy of it.
    changes_at: int  # Where base offset, log append time and log start offset stand in the answer.


class Filtered(NamedTuple):
    """What is left of a batch."""

    batch: Buffer | None  # None: nothing. The very bytes of the batch if it stays as it is.
    records_kept: int
    records_dropped: int
    max_timestamp: int  # Of the batch that is left; -1 without one.
    offset_of_max_timestamp: int  # For the time index: the last offset of the batch that is left; -1 without one.


class Aborted(NamedTuple):
    """An aborted transaction that begins in, or reaches into, what was fetched."""

    first_offset: int
    producer_id: int


class Damage(NamedTuple):
    """A batch that cannot be read. `next_offset` is the first one after it, as far as can be told."""

    offset: int
    next_offset: int
    reason: str


class FetchedPart(NamedTuple):
    """What was fetched of one partition, and the offset to begin at; `aborted` are named under read_committed."""

    partition: int
    data: Buffer
    position: int
    aborted: Sequence[Aborted] = ()


class PartEnd(NamedTuple):
    """How far a part was read. Not `finished`: `bytes_max` was reached, and it goes on at `next_offset`."""

    next_offset: int
    damage: Damage | None
    needed: int  # Size of the first batch, when that is larger than all that was fetched.
    finished: bool


class BuiltBatch(NamedTuple):
    """A batch of `records` records that is ready to be sent to a partition."""

    partition: int
    records: int
    data: bytes
