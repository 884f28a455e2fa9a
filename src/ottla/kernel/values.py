"""The arguments and results of the kernel's functions, the same for both implementations."""

from collections.abc import Sequence
from typing import Any, NamedTuple

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
    """The batches found at the start of a buffer, and why the scan ended."""

    headers: list[BatchHeader]
    consumed: int  # Bytes of whole, valid batches from the start.
    needed: int  # Size of the incomplete batch at `consumed`; 0 if there is none, or its size is not known yet.
    fault: str | None  # Why the bytes at `consumed` are not a valid batch; None if the buffer only ends there.


class ProduceRules(NamedTuple):
    """The settings of a topic that decide what may be appended to it; defaults are Kafka's."""

    compacted: bool = False
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    codec: Codec | None = None  # None: keep the compression of the producer.
    level: int | None = None  # Used only when the broker compresses a batch.
    max_message_bytes: int | None = None  # None: any size.
    from_client: bool = True  # False: a coordinator of this broker appends, so rule 1 of `check_produced` is skipped.
    at_once_max: int | None = None  # Largest number of bytes of records to check; more raises `TakesLong`.


class Checked(NamedTuple):
    """A batch that was accepted and can be stamped and appended."""

    batch: memoryview  # A view of the received buffer, unless the batch was rebuilt.
    header: BatchHeader
    max_timestamp: int
    # The offset for the time index: the batch's last offset, not that of the record with the max timestamp, because
    # followers and recovery read only headers. -1 if there is no timestamp.
    offset_delta_of_max_timestamp: int
    recompressed: bool


class ProducePlace(NamedTuple):
    """The offset and epoch of the next batch of a partition, and the limits of the active segment."""

    next_offset: int
    leader_epoch: int
    log_start_offset: int
    bytes_left: int
    batches_left: int
    latest_timestamp: int
    offset_max: int
    sequences: dict[int, tuple[int, int]]  # Producer id to its epoch and next sequence.


class ProduceTopic(NamedTuple):
    """A topic whose Produce requests may be taken: its rules, and the places of its partitions."""

    rules: ProduceRules
    places: dict[int, ProducePlace]  # By partition.
    topic: Any  # The caller's own object for the topic; results contain it.


ProduceAsk = tuple[Any, int, int, int, int]
"""A partition that has no place yet, or no sequence of this producer, which the caller has to provide before a request
can be taken: `ProduceTopic.topic`, the partition, and the producer's id, epoch and sequence."""
ProducedPart = tuple[Any, int, ProducePlace, list[BatchHeader], list[memoryview], list[tuple[int, int, int]]]
"""The batches taken for one partition: `ProduceTopic.topic`, the partition, its place after them, their headers, the
batches, and the id, epoch and next sequence of each producer."""


class Filtered(NamedTuple):
    """The result of compacting one batch."""

    batch: Buffer | None  # None if no batch is left. The same bytes if the batch stays unchanged.
    records_kept: int
    records_dropped: int
    max_timestamp: int  # Of the remaining batch; -1 if none is left.
    offset_of_max_timestamp: int  # For the time index: the last offset of the remaining batch; -1 if none is left.


class Aborted(NamedTuple):
    """An aborted transaction that overlaps the fetched offsets."""

    first_offset: int
    producer_id: int


class Damage(NamedTuple):
    """A batch that cannot be read. `next_offset` is the offset after it, estimated if its header is damaged."""

    offset: int
    next_offset: int
    reason: str


class FetchedPart(NamedTuple):
    """The fetched bytes of one partition, and the offset to begin at. `aborted` is given under read_committed."""

    partition: int
    data: Buffer
    position: int
    aborted: Sequence[Aborted] = ()


class PartEnd(NamedTuple):
    """How far a part was read. If it is not `finished`, `bytes_max` was reached: continue at `next_offset`."""

    next_offset: int
    damage: Damage | None
    needed: int  # Size of the first batch, if it is larger than the fetched bytes; otherwise 0.
    finished: bool


class BuiltBatch(NamedTuple):
    """A batch of `records` records that is ready to be sent to a partition."""

    partition: int
    records: int
    data: bytes
