"""A topic as a table of a streaming query: the Python data source `ottla-table`, a batch in every epoch.

Rule 1: Spark plans a table once, when the query is made, and computes the plan in every epoch. So the plan says no more
        than how many tasks share the table; what it holds they find out when they run (`table_pins`).
Rule 2: Spark writes down that an epoch has begun before its tasks run. So their epoch is the one that the checkpoint
        has begun and not ended.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ottla.client.core.errors import Declined
from ottla.pipelines.checkpoint import Checkpoint
from ottla.pipelines.ranges import Logs
from ottla.pipelines.reading import Reading, from_options, reading_of, to_options
from ottla.pipelines.spark.topic_source import COLUMNS
from ottla.pipelines.spec import Start, TopicSource
from ottla.pipelines.table_pins import TablePins
from ottla.pipelines.table_snapshots import read_part
from ottla.pipelines.topic_survey import TopicSurvey
from ottla.wire.errors import Error

FORMAT: Final = "ottla-table"
_DIRECTORY: Final = "ottla-tables"
_CHECKPOINT: Final = "checkpoint"
_SINK: Final = "sink"


def read_table(
    spark: SparkSession, source: TopicSource, bootstrap: str, checkpoint: Checkpoint, sink: str
) -> DataFrame:
    """In every epoch of the sink's query: the latest record of each key of each partition, if it has a value."""
    spark.dataSource.register(TableDataSource)
    options = to_options(reading_of(source, bootstrap, start=Start()))
    options |= {_CHECKPOINT: checkpoint.directory, _SINK: sink}
    return spark.read.format(FORMAT).options(**options).load()


class TableDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002  # Spark's name.
        options = dict(self.options)
        checkpoint, sink = options.pop(_CHECKPOINT), options.pop(_SINK)
        return TableReader(from_options(options), checkpoint, sink)


class Share(InputPartition):
    """Every `of`-th part of the table, from `number` on."""

    def __init__(self, number: int, of: int) -> None:
        self.number, self.of = number, of


class TableReader(DataSourceReader):
    def __init__(self, reading: Reading, checkpoint: str, sink: str) -> None:
        self._reading, self._checkpoint, self._sink = reading, checkpoint, sink

    def partitions(self) -> Sequence[InputPartition]:
        tasks = len(self._survey())
        return [Share(number, tasks) for number in range(tasks)]

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Where nothing was planned Spark still reads once, with None (4.1) or with a partition of its own (4.3)."""
        if not isinstance(partition, Share):
            return
        checkpoint = Checkpoint(self._checkpoint)
        epoch = checkpoint.unfinished(self._sink)
        assert epoch is not None, f"table {self._reading.source} is read, and sink {self._sink} is in no epoch"
        pins = TablePins(os.path.join(checkpoint.sink(self._sink), _DIRECTORY, self._reading.source))
        for part in pins.parts(epoch, self._survey)[partition.number :: partition.of]:
            yield from read_part(self._reading, part)

    def _survey(self) -> Logs:
        survey = TopicSurvey(self._reading)
        try:
            logs = survey.logs()
            for name in survey.missing_topics(logs):
                raise Declined(Error.UNKNOWN_TOPIC_OR_PARTITION, subject=f"topic {name}")
            return logs
        finally:
            survey.close()
