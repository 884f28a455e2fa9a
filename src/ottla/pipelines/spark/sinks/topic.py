"""Rows into topics: the tasks of an epoch on the executors, each with its own transactional id.

Rule 1: the same rows go to the same task whenever an epoch is done again: by the hash of the key, or of the value where
        there is no key, over a number of tasks that the first run settled.
Rule 2: every task writes, also one without rows: its marker says that it has seen the epoch.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from ottla.pipelines.outgoing import completed
from ottla.pipelines.python_workers import lighten
from ottla.pipelines.spark.records import IS_DEAD, with_epoch
from ottla.pipelines.spark.sinks.writing import Outcome, Run
from ottla.pipelines.spec import TopicSink
from ottla.pipelines.topic_writer import Target, write_epoch

_RESULT: Final = "records BIGINT, dead BIGINT, skipped BOOLEAN"


@dataclass(frozen=True)
class WriteTask:
    """For mapInArrow: writes the rows of one task and gives one row that says what became of them."""

    target: Target
    epoch: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "this runs in a task"
        dead = 0

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal dead
            for batch in batches:
                if IS_DEAD in batch.schema.names:
                    dead += batch.column(IS_DEAD).true_count
                    batch = batch.drop_columns([IS_DEAD])
                yield completed(batch, self.target.topic)

        written = write_epoch(self.target, context.partitionId(), self.epoch, rows())
        row = {"records": [written.records], "dead": [dead], "skipped": [written.skipped]}
        yield pa.RecordBatch.from_pydict(
            row, pa.schema([("records", pa.int64()), ("dead", pa.int64()), ("skipped", pa.bool_())])
        )
        lighten()


class TopicWriter:
    def __init__(self, sink: TopicSink, run: Run) -> None:
        assert sink.parallelism is not None, "settled before the first epoch"
        self._parallelism = sink.parallelism
        self._target = Target.of(
            sink,
            bootstrap=run.bootstrap,
            identity=run.identity,
            delivery=run.delivery,
            run=run.name,
            checkpoint=run.checkpoint_id,
        )

    def begin(self) -> None:
        """Every task fences older runs itself, by its transactional id."""

    def write(self, rows: DataFrame, epoch: int) -> Outcome:
        spread = F.coalesce(F.col("key"), F.col("value"), F.lit(b""))
        tasks = with_epoch(rows, epoch).repartition(self._parallelism, spread)
        written = tasks.mapInArrow(WriteTask(self._target, epoch), _RESULT).collect()
        done = [row for row in written if not row.skipped]
        dead = sum(row.dead for row in done)
        return Outcome(sum(row.records for row in done) - dead, dead, len(written) - len(done))
