"""Decodes fetched bytes to columns for a table engine, without an object per record.

Rule 1: the columns, and their types in Arrow:

  partition int32 · offset int64 · timestamp timestamp[ms, UTC] · timestamp_type int8 (see `TimestampType`) ·
  key binary, null if there is none · value binary, the same ·
  headers list<struct<key: string, value: binary>>, empty if there are none

Rule 2: the records and their order are those of `RecordReader`, part after part.
Rule 3: a result ends with the batch that brings it to `bytes_max` bytes of uncompressed records. `ends` says where each
        part continues: the same part from there gives the rest. Columns take a small multiple of these bytes.
Rule 4: the result implements Arrow's C data interface (`pyarrow.record_batch(columns)`).
"""

from collections.abc import Iterable
from typing import Any, Final

from ottla.kernel.reference.fetched import FetchedBatches
from ottla.kernel.values import FetchedPart, PartEnd, Record

COLUMN_NAMES: Final = ("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
COLUMNS_BYTES_MAX: Final = 512 * 1024 * 1024
"""The limit of `bytes_max`: Arrow counts the bytes of a column in 31 bits, and a header's name may triple in size when
invalid UTF-8 is replaced."""
BATCH_BYTES_MAX: Final = 128 * 1024 * 1024
"""A larger batch counts as damaged, for the same reason. Decompression is limited below this, and brokers refuse larger
batches by default."""

BYTES_MAX: Final = 256 * 1024 * 1024


class Columns:
    """The columns of some records, and the end of each part they came from."""

    def __init__(self) -> None:
        self.ends: list[PartEnd] = []
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMN_NAMES}

    def __len__(self) -> int:
        return len(self._columns["offset"])

    def to_pydict(self) -> dict[str, list[Any]]:
        """The columns as lists; a record's headers are a list of (name, value) pairs."""
        return self._columns

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Capsules of an ArrowSchema and an ArrowArray, created by pyarrow, because plain Python cannot."""
        import pyarrow

        capsules: tuple[object, object] = pyarrow.RecordBatch.from_pydict(
            self._columns, schema=_arrow_schema(pyarrow)
        ).__arrow_c_array__(requested_schema)
        return capsules

    def add(self, partition: int, timestamp_type: int, records: list[Record]) -> None:
        columns = self._columns
        columns["partition"] += [partition] * len(records)
        columns["offset"] += [record.offset for record in records]
        columns["timestamp"] += [record.timestamp for record in records]
        columns["timestamp_type"] += [timestamp_type] * len(records)
        columns["key"] += [record.key for record in records]
        columns["value"] += [record.value for record in records]
        columns["headers"] += [list(record.headers) for record in records]


def read_columns(parts: Iterable[FetchedPart], *, bytes_max: int = BYTES_MAX) -> Columns:
    """The records of `parts` as columns."""
    if not 0 < bytes_max <= COLUMNS_BYTES_MAX:
        raise ValueError(f"bytes_max is {bytes_max}; choose 1 to {COLUMNS_BYTES_MAX}")
    columns = Columns()
    held = 0
    for part in parts:
        batches = FetchedBatches(part.data, part.position, part.aborted, batch_bytes_max=BATCH_BYTES_MAX)
        while held < bytes_max and (batch := batches.next_batch()) is not None:
            columns.add(part.partition, batch.header.timestamp_type, batch.records)
            held += batch.size
        columns.ends.append(PartEnd(batches.next_offset, batches.damage, batches.needed, batches.finished))
    return columns


def _arrow_schema(pyarrow: Any) -> Any:
    """The pyarrow schema of the columns (rule 1)."""
    header = pyarrow.struct(
        [pyarrow.field("key", pyarrow.string(), nullable=False), pyarrow.field("value", pyarrow.binary())]
    )
    return pyarrow.schema(
        [
            pyarrow.field("partition", pyarrow.int32(), nullable=False),
            pyarrow.field("offset", pyarrow.int64(), nullable=False),
            pyarrow.field("timestamp", pyarrow.timestamp("ms", "UTC"), nullable=False),
            pyarrow.field("timestamp_type", pyarrow.int8(), nullable=False),
            pyarrow.field("key", pyarrow.binary()),
            pyarrow.field("value", pyarrow.binary()),
            pyarrow.field("headers", pyarrow.list_(pyarrow.field("item", header, nullable=False)), nullable=False),
        ]
    )
