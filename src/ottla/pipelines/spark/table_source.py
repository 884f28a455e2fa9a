"""A topic as a table of a streaming query: the Python data source `ottla-table`, read as a batch in every epoch.

Rule 1: Spark plans a table once, when the query is made, and runs that plan in every epoch. So the plan only holds the
        number of tasks. The tasks find out what the table contains when they run (`source/table_pins`).
Rule 2: tasks get their epoch from a local property that Spark sets.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ottla.pipelines.run.checkpoint import Checkpoint
from ottla.pipelines.source.ranges import LogsByPartition
from ottla.pipelines.source.read_options import TopicReadOptions, from_options, read_options_of, to_options
from ottla.pipelines.source.table_pins import TablePins
from ottla.pipelines.source.table_snapshots import read_part
from ottla.pipelines.source.topic_survey import TopicSurvey
from ottla.pipelines.spark.registering import register
from ottla.pipelines.spark.topic_source import COLUMNS
from ottla.pipelines.spec.model import StartPosition, TopicSource
from ottla.rpc.errors import Declined
from ottla.wire.errors import Error

FORMAT: Final = "ottla-table"
_DIRECTORY: Final = "directory"
_EPOCH: Final = "streaming.sql.batchId"


def read_table(
    spark: SparkSession, source: TopicSource, bootstrap: str, checkpoint: Checkpoint, sink: str
) -> DataFrame:
    """A frame that, in every epoch of the sink's query, has the latest record of each key that has a value."""
    register(spark, TableDataSource)
    options = to_options(read_options_of(source, bootstrap, start=StartPosition()))
    options[_DIRECTORY] = os.path.join(checkpoint.sink(sink), "ottla-tables", source.name)
    return spark.read.format(FORMAT).options(**options).load()


class TableDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002  # Spark's name.
        options = dict(self.options)
        directory = options.pop(_DIRECTORY)
        return TableReader(from_options(options), directory)


class TableShare(InputPartition):
    """The partitions of the table that one task reads: every `of`-th, from `number` on."""

    def __init__(self, number: int, of: int) -> None:
        self.number, self.of = number, of


class TableReader(DataSourceReader):
    def __init__(self, reading: TopicReadOptions, directory: str) -> None:
        self._reading, self._directory = reading, directory

    def partitions(self) -> Sequence[InputPartition]:
        tasks = len(self._survey()) or 1  # Topics that match a pattern may be created later.
        return [TableShare(number, tasks) for number in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, TableShare)
        context = TaskContext.get()
        epoch = context.getLocalProperty(_EPOCH) if context is not None else None
        assert epoch is not None, f"table {self._reading.source} is read in no epoch"
        for part in TablePins(self._directory).parts(int(epoch), self._survey)[partition.number :: partition.of]:
            yield from read_part(self._reading, part)

    def _survey(self) -> LogsByPartition:
        survey = TopicSurvey(self._reading)
        try:
            logs = survey.logs()
            for name in survey.missing_topics(logs):
                raise Declined(Error.UNKNOWN_TOPIC_OR_PARTITION, subject=f"topic {name}")
            return logs
        finally:
            survey.close()
