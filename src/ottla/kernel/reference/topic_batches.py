"""Builds the batches of a topic's partitions from columns of a table engine, without an object per record.

Rule 1: the columns of rows, in this order, and their types in Arrow:

  partition int32, null if the row names none · timestamp int64 in milliseconds, null for `now_ms` ·
  key binary · value binary · headers list<struct<key: string, value: binary>>, null or empty for none

Rule 2: a row goes to the partition it names. Otherwise its key decides, as in Kafka's own clients; rows without a key
        stay with one partition until a batch's worth of bytes went there, then go to the next one. With `round_robin`
        every row that names no partition goes to the partition after the previous row's, key or not.
Rule 3: the rows of a partition keep their order. A batch is complete when the next row might not fit into
        `batch_bytes`, uncompressed; a larger row has a batch of its own.
Rule 4: batches carry the given producer and sequences that count from 0 in each partition.
Rule 5: an invalid row is a ValueError. Rows before it were added, so the caller must discard all of them.
"""

from typing import Any, Final

from ottla.kernel.batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    Codec,
    increment_sequence,
)
from ottla.kernel.reference.build import BatchBuilder, encode_headers
from ottla.kernel.reference.murmur import murmur2
from ottla.kernel.values import BuiltBatch

PARTITIONS_MAX: Final = 1_000_000
RECORD_OVERHEAD: Final = 1 + 5 + 10 + 5 + 5 + 5
"""Attributes, and varints of the length, of both deltas and of two sizes: the maximum a row takes beside its bytes."""
ROWS_WANTED: Final = (
    "rows are columns of partition int32, timestamp int64, key binary, value binary and "
    "headers list<struct<key: string, value: binary>>, in this order"
)


class TopicBatches:
    """The batches of one topic being built, one per partition."""

    def __init__(
        self,
        partitions: int,
        *,
        batch_bytes: int,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        transactional: bool = False,
        first: int = 0,
        round_robin: bool = False,
    ) -> None:
        """`first` is the first partition for rows without partition and key, so that parallel tasks start with
        different ones."""
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise ValueError(f"{partitions} partitions; a topic has 1 to {PARTITIONS_MAX}")
        if batch_bytes < 1 or first < 0:
            raise ValueError(f"batch_bytes is {batch_bytes} and first is {first}; choose at least 1 and 0")
        self._partitions = partitions
        self._batch_bytes = batch_bytes
        self._codec, self._level = codec, level
        self._producer = producer_id, producer_epoch
        self._attributes = codec | TRANSACTIONAL_FLAG if transactional else int(codec)
        self._round_robin = round_robin
        self._next = first % partitions
        self._next_bytes = 0
        self._builders: dict[int, BatchBuilder] = {}
        self._sequences: dict[int, int] = {}

    @property
    def held_bytes(self) -> int:
        """Uncompressed bytes of the rows in incomplete batches."""
        return sum(builder.records_size for builder in self._builders.values())

    def add(self, rows: Any, *, now_ms: int) -> list[BuiltBatch]:
        """Add rows from an object with Arrow's C data interface; returns the batches that became complete."""
        complete: list[BuiltBatch] = []
        columns = _columns_of(rows)
        for partition, timestamp, key, value, headers in zip(*columns, strict=True):
            encoded = encode_headers(_pairs(headers or ()))
            size = RECORD_OVERHEAD + len(key or b"") + len(value or b"") + len(encoded)
            to = self._partition_for(partition, key, size)
            builder = self._builders.get(to)
            if builder is not None and builder.size + size > self._batch_bytes:
                complete.append(self._built(to))
                builder = None
            if builder is None:
                builder = self._builders[to] = BatchBuilder()
            builder.append_encoded(now_ms if timestamp is None else timestamp, key, value, encoded)
        return complete

    def flush(self) -> list[BuiltBatch]:
        """All batches that have rows, by partition."""
        return [self._built(partition) for partition in sorted(self._builders)]

    def _partition_for(self, named: int | None, key: bytes | None, size: int) -> int:
        if named is not None:
            if not 0 <= named < self._partitions:
                raise ValueError(f"a row names partition {named}; the topic has {self._partitions}, counted from 0")
            return named
        if self._round_robin:
            to, self._next = self._next, (self._next + 1) % self._partitions
            return to
        if key is not None:
            return (murmur2(key) & 0x7FFF_FFFF) % self._partitions
        to = self._next
        self._next_bytes += size
        if self._next_bytes >= self._batch_bytes - HEADER_SIZE:
            self._next, self._next_bytes = (to + 1) % self._partitions, 0
        return to

    def _built(self, partition: int) -> BuiltBatch:
        builder = self._builders.pop(partition)
        producer_id, producer_epoch = self._producer
        sequence = NO_SEQUENCE
        if producer_id != NO_PRODUCER_ID:
            sequence = self._sequences.get(partition, 0)
            self._sequences[partition] = increment_sequence(sequence, builder.count)
        data = builder.build(
            codec=self._codec,
            level=self._level,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            attributes=self._attributes,
        )
        return BuiltBatch(partition, builder.count, data)


def _columns_of(rows: Any) -> list[list[Any]]:
    import pyarrow

    header = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
    wanted = [
        ("partition", pyarrow.int32()),
        ("timestamp", pyarrow.int64()),
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("headers", pyarrow.list_(header)),
    ]
    batch = pyarrow.record_batch(rows)
    if [(field.name, field.type) for field in batch.schema] != wanted:
        raise ValueError(ROWS_WANTED)
    return [column.to_pylist() for column in batch.columns]


def _pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    pairs: list[tuple[str, bytes | None]] = []
    for header in headers:
        if header is None or header["key"] is None:
            raise ValueError("a header has no name; every header needs one")
        pairs.append((header["key"], header["value"]))
    return pairs
