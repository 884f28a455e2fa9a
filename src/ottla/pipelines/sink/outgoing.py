"""Prepares rows for a topic: Spark's Arrow batches become the columns that the kernel takes, topic by topic.

Rule 1: a row has the columns `topic`, `partition` (null: the partitioner chooses), `key`, `value`, `headers` and
        `timestamp` (null: now), in any order. Any other column is an error.
Rule 2: columns are passed on unchanged if their types fit. Rows are looked at one by one only for a partitioner
        function of the pipeline.
Rule 3: a sink's partitioner applies to the sink's own topic. Rows for other topics, which are dead letters, are
        partitioned by their keys.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.sink.epochs import WriteError
from ottla.pipelines.spec.record_columns import SINK_COLUMNS, arrow_fields

if TYPE_CHECKING:
    import pyarrow

DEFAULT: Final = "default"
ROUND_ROBIN: Final = "round-robin"

Partitioner = Callable[[bytes | None, bytes | None, int], int]
"""A function of the pipeline that takes key, value and the number of partitions and returns a partition."""


class BadRows(WriteError):
    """Rows that cannot be written to a topic."""


def partitioner_named(name: str) -> Partitioner | None:
    """The function that `MODULE:NAME` names; None for the kernel's own partitioners."""
    if name in (DEFAULT, ROUND_ROBIN):
        return None
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadRows(
            f"partitioner {name}: {error}. Use default, round-robin, or MODULE:NAME of a function that the tasks can "
            "import: it takes key, value and the number of partitions, and returns a partition"
        ) from error
    if not callable(found):
        raise BadRows(f"partitioner {name} is {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def completed(batch: "pyarrow.RecordBatch", topic: str) -> "pyarrow.RecordBatch":
    """The rows with missing columns added: `topic` is the topic given, others are null."""
    import pyarrow

    types = dict(_wanted(pyarrow))
    for name in SINK_COLUMNS:
        if name not in batch.schema.names:
            count = batch.num_rows
            made = pyarrow.repeat(topic, count) if name == "topic" else pyarrow.nulls(count, types[name])
            batch = batch.append_column(name, made)
    return batch


def rows_by_topic(batch: "pyarrow.RecordBatch") -> Iterator[tuple[str, "pyarrow.RecordBatch"]]:
    """The rows of each topic, in their order, with the columns that `TopicBatches` takes."""
    import pyarrow
    import pyarrow.compute

    if sorted(batch.schema.names) != sorted(SINK_COLUMNS):
        raise BadRows(
            f"rows for a topic have the columns {', '.join(SINK_COLUMNS)}, not {', '.join(batch.schema.names)}"
        )
    if not batch.num_rows:
        return
    topic = batch.column("topic")
    if topic.null_count:
        raise BadRows(f"{topic.null_count} of {batch.num_rows} rows have no topic")
    rows = pyarrow.record_batch(
        [_column(pyarrow, batch, name, wanted) for name, wanted in _wanted(pyarrow)],
        names=[name for name, _ in _wanted(pyarrow)],
    )
    names = pyarrow.compute.unique(topic).to_pylist()
    for name in names:
        yield name, rows if len(names) == 1 else rows.filter(pyarrow.compute.equal(topic, name))


def with_partitions(rows: "pyarrow.RecordBatch", choose: Partitioner, partitions: int) -> "pyarrow.RecordBatch":
    """The rows with a partition chosen for each row that has none."""
    import pyarrow

    named, keys, values = (rows.column(name).to_pylist() for name in ("partition", "key", "value"))
    chosen: list[int] = []
    for partition, key, value in zip(named, keys, values, strict=True):
        if partition is None:
            partition = choose(key, value, partitions)
            if not isinstance(partition, int) or not 0 <= partition < partitions:
                raise BadRows(f"the partitioner chose {partition!r}; the topic has {partitions} partitions, from 0")
        chosen.append(partition)
    return rows.set_column(0, "partition", pyarrow.array(chosen, pyarrow.int32()))


def _wanted(pyarrow: Any) -> tuple[tuple[str, Any], ...]:
    """What `TopicBatches` takes, in its order; times are milliseconds."""
    key_value_headers = arrow_fields(("key", "value", "headers"))
    return *arrow_fields(("partition",)), ("timestamp", pyarrow.int64()), *key_value_headers


def _column(pyarrow: Any, batch: "pyarrow.RecordBatch", name: str, wanted: Any) -> Any:
    column = batch.column(name)
    try:
        if pyarrow.types.is_timestamp(column.type):
            # A record's timestamp is in milliseconds; finer parts are cut off.
            column = column.cast(pyarrow.timestamp("ms", column.type.tz), safe=False)
        return column if column.type == wanted else column.cast(wanted)
    except pyarrow.ArrowException as error:
        raise BadRows(f"column {name} is {batch.schema.field(name).type}; {wanted} is needed ({error})") from error
