"""The topic sink: the tasks of an epoch write to a topic on the executors, each with its own transactional id.

Rule 1: a row goes to the same task whenever an epoch is repeated: by the hash of its key, or of its value if it has no
        key, over a number of tasks that the first run settled.
Rule 2: every task writes, even one without rows: its marker says that it has done the epoch.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.run.python_workers import lighten
from ottla.pipelines.sink.dead_letters import EPOCH
from ottla.pipelines.sink.outgoing import completed
from ottla.pipelines.sink.writing import EpochResult, RunContext
from ottla.pipelines.spec import model
from ottla.pipelines.spec.keys import MESSAGE_KEY, SCHEMA_KEY, SINK_INPUT, TOPIC_PARSE, TableForm, TableKey
from ottla.pipelines.spec.model import TopicSink
from ottla.pipelines.spec.record_columns import HEADERS_TYPE, IS_DEAD
from ottla.pipelines.spec.sinks import SinkKind, listed_columns
from ottla.pipelines.spec.values import COLUMN_NAMES, DURATION, REFERENCE, SIZE, TOPIC, choice, either, whole

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

    from ottla.pipelines.sink.topic_writer import TopicTarget

_RESULT: Final = "records BIGINT, dead BIGINT, skipped BOOLEAN"


@dataclass(frozen=True)
class WriteTask:
    """A function for Spark's `mapInArrow`. It writes the rows of one task, and returns one row with the counts."""

    target: "TopicTarget"
    epoch: int

    def __call__(self, batches: Iterable["pyarrow.RecordBatch"]) -> Iterator["pyarrow.RecordBatch"]:
        import pyarrow
        from pyspark import TaskContext

        from ottla.pipelines.sink.topic_writer import write_epoch

        context = TaskContext.get()
        assert context is not None, "this runs in a task"
        dead = 0

        def rows() -> Iterator[Any]:
            nonlocal dead
            for batch in batches:
                if IS_DEAD in batch.schema.names:
                    dead += batch.column(IS_DEAD).true_count
                    batch = batch.drop_columns([IS_DEAD])
                yield completed(batch, self.target.topic)

        written = write_epoch(self.target, context.partitionId(), self.epoch, rows())
        row = {"records": [written.records], "dead": [dead], "skipped": [written.skipped]}
        yield pyarrow.RecordBatch.from_pydict(
            row, pyarrow.schema([("records", pyarrow.int64()), ("dead", pyarrow.int64()), ("skipped", pyarrow.bool_())])
        )
        lighten()


class TopicWriter:
    def __init__(self, sink: TopicSink, run: RunContext) -> None:
        from ottla.pipelines.sink.topic_writer import TopicTarget  # Imports the client, which `plan` does not need.

        assert sink.parallelism is not None, "settled before the first epoch"
        self._parallelism = sink.parallelism
        self._target = TopicTarget.of(
            sink,
            bootstrap=run.bootstrap,
            identity=run.identity,
            delivery=run.delivery,
            run=run.name,
            checkpoint=run.checkpoint_id,
        )

    def begin(self) -> None:
        """Nothing to take over here: every task fences older runs by its transactional id."""

    def write(self, rows: "DataFrame", epoch: int) -> EpochResult:
        from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

        spread = F.coalesce(F.col("key"), F.col("value"), F.lit(b""))
        tasks = with_epoch(rows, epoch).repartition(self._parallelism, spread)
        written = tasks.mapInArrow(WriteTask(self._target, epoch), _RESULT).collect()
        done = [row for row in written if not row.skipped]
        dead = sum(row.dead for row in done)
        return EpochResult(sum(row.records for row in done) - dead, dead, len(written) - len(done))


def with_epoch(records: "DataFrame", epoch: int) -> "DataFrame":
    """The records, with the epoch among the headers of dead letters, if there can be any."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    if IS_DEAD not in records.columns:
        return records
    header = F.struct(F.lit(EPOCH).alias("key"), F.lit(str(epoch)).cast("binary").alias("value"))
    headers = F.concat("headers", F.array(header).cast(HEADERS_TYPE))
    return records.withColumn("headers", F.when(F.col(IS_DEAD), headers).otherwise(F.col("headers")))


def _describe(sink: TopicSink) -> Iterator[str]:
    yield f"topic {sink.topic}"
    yield str(sink.serialise)
    yield from listed_columns("key", sink.key)


PARTITIONER: Final = either(
    ("default", "round-robin"), REFERENCE, "default, round-robin, or a function of yours as MODULE:NAME"
)

KIND = SinkKind(
    form=TableForm(
        "a topic sink",
        ("topic",),
        (
            TableKey("topic", TOPIC, "The topic to write.", required=True, is_target=True),
            SINK_INPUT,
            TableKey("key", COLUMN_NAMES, "The column, or columns, of the record's key.", (), routes_rows=True),
            TableKey("headers", COLUMN_NAMES, "Columns that become headers instead of part of the value.", ()),
            TableKey("serialise", TOPIC_PARSE, "What the values are.", model.Parse.JSON),
            SCHEMA_KEY.but(default_doc="the columns of the input"),
            MESSAGE_KEY,
            TableKey(
                "partitioner", PARTITIONER, "Which partition a record goes to; `default` is Kafka's own.", "default"
            ),
            TableKey(
                "codec",
                choice(model.Compression),
                "How batches are compressed.",
                model.Compression.NONE,
                is_transport=True,
            ),
            TableKey("batch_size", SIZE, "How large a batch grows.", 256 << 10, field="batch_bytes", is_transport=True),
            TableKey(
                "linger",
                DURATION,
                "How long a batch waits for more records.",
                5,
                field="linger_ms",
                is_transport=True,
            ),
            TableKey(
                "parallelism",
                whole(1, 10_000),
                "How many tasks write, each with a transactional id.",
                default_doc="settled by the first run",
                routes_rows=True,
            ),
            TableKey(
                "transaction_timeout",
                DURATION,
                "Longer than the longest task takes; the cluster's `transaction.max.timeout.ms` allows it.",
                10 * 60_000,
                field="transaction_timeout_ms",
                is_transport=True,
            ),
        ),
        TopicSink,
    ),
    writer=lambda sink, run, _spark: TopicWriter(sink, run),
    describe=_describe,
    epoch_doc="a marker in the same transaction, for each task; readers use `read_committed`",
    takes_meta_columns=False,
)
