"""Topics as a Spark source: the Python data source `ottla-topic`, for streams and for records between two times.

Rule 1: Spark keeps the position in its checkpoint. After a restart it tells the position before it asks for the end of
        the next epoch, by planning the epoch that it repeats, or an epoch that begins where it ends.
Rule 2: a query without a checkpoint begins with an epoch that reads nothing, so that the start is in the checkpoint.
        Spark does not write the start, and would ask again when it repeats the first epoch, when `latest` has moved.
Rule 3: the driver plans, with its own connections. A task gets one range and fetches it.
Rule 4: a stream with `until` ends where the topics ended when it began, or at a time. It then gives no new offsets, and
        `processAllAvailable` returns. Spark's trigger `availableNow` cannot be used: it would stop after the first,
        empty epoch.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from ottla.client.core.names import TopicPartition
from ottla.observe.trace import warn
from ottla.pipelines.run.python_workers import lighten
from ottla.pipelines.source.allowance import Allowance
from ottla.pipelines.source.losses import report
from ottla.pipelines.source.ranges import (
    EndOfReading,
    LogBounds,
    OffsetRange,
    PartitionOffsets,
    TopicProgress,
    from_document,
    ranges_between,
    split,
    to_document,
    topic_ids_from,
)
from ottla.pipelines.source.read_options import LATEST, TopicReadOptions, from_options, read_options_of, to_options
from ottla.pipelines.source.starts import Beginning, TruncatedTopic, begin
from ottla.pipelines.source.topic_fetcher import fetch_range
from ottla.pipelines.source.topic_survey import TopicSurvey
from ottla.pipelines.spark.registering import register
from ottla.pipelines.spec.model import StartPosition, TopicSource
from ottla.pipelines.spec.record_columns import SOURCE_COLUMNS, sql_columns
from ottla.rpc.errors import Declined
from ottla.wire.errors import Error

FORMAT: Final = "ottla-topic"
COLUMNS: Final = sql_columns(SOURCE_COLUMNS)
CAUGHT_UP: Final = StartPosition(LATEST)
"""For `until`: end where the topics end now."""


def read_stream(
    spark: SparkSession,
    source: TopicSource,
    bootstrap: str,
    *,
    until: StartPosition | None = None,
    columns: tuple[str, ...] = SOURCE_COLUMNS,
) -> DataFrame:
    """A stream of a source's records, from its start or from the query's checkpoint."""
    register(spark, TopicDataSource)
    reading = read_options_of(source, bootstrap, until=until, columns=columns)
    return spark.readStream.format(FORMAT).options(**to_options(reading)).load()


def read_between(
    spark: SparkSession,
    source: TopicSource,
    bootstrap: str,
    from_ms: int,
    to_ms: int,
    columns: tuple[str, ...] = SOURCE_COLUMNS,
) -> DataFrame:
    """The records with offsets from the first at or after `from_ms` to before the first at or after `to_ms`."""
    start, until = StartPosition("", from_ms), StartPosition("", to_ms)
    return _read(spark, read_options_of(source, bootstrap, start=start, until=until, columns=columns))


def read_all(spark: SparkSession, source: TopicSource, bootstrap: str) -> DataFrame:
    """All records that the topics hold whenever the frame is computed."""
    return _read(spark, read_options_of(source, bootstrap, start=StartPosition(), until=CAUGHT_UP))


def _read(spark: SparkSession, reading: TopicReadOptions) -> DataFrame:
    register(spark, TopicDataSource)
    return spark.read.format(FORMAT).options(**to_options(reading)).load()


class TopicDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return sql_columns(from_options(self.options).columns)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802, ARG002  # Spark's name.
        return TopicStreamReader(from_options(self.options))

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
        return TopicReader(from_options(self.options))


class RangePartition(InputPartition):
    """The range of offsets that one task reads."""

    def __init__(self, wanted: OffsetRange) -> None:
        self.wanted = wanted


class TopicStreamReader(DataSourceStreamReader):
    """Plans the epochs of a streaming query. Spark keeps it in a process beside the driver as long as the query runs;
    tasks get copies, which only fetch records."""

    def __init__(self, reading: TopicReadOptions) -> None:
        self._reading = reading
        self._survey = TopicSurvey(reading)
        self._progress = TopicProgress()
        self._allowance = Allowance(reading.records_per_batch_max, reading.records_per_second_max)
        self._initial: dict[str, Any] | None = None
        self._until: EndOfReading | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._reading,)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's names, here and below.
        if self._initial is None:
            logs = self._survey.logs()
            beginning = _begin(self._reading, self._survey, logs)
            _warn_of(beginning.late, self._reading.source)
            self._initial = to_document(beginning.offsets, _topic_ids(logs))
        return self._initial

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._progress.position is None:
            initial = self.initialOffset()
            self._arrived(initial)
            return initial
        while (limit := self._allowance.limit(_now_ms())) == 0:
            time.sleep(self._allowance.wait_ms() / 1000)
        logs = self._survey.logs()
        if self._reading.until is not None and self._until is None:
            self._until = EndOfReading(_end(self._reading.until, self._survey, logs))
        epoch = self._progress.advance(logs, limit, self._until)
        report(epoch.losses, self._reading.on_data_loss, self._reading.source)
        self._allowance.spend(epoch.records)
        return to_document(epoch.end, epoch.topic_ids)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._arrived(end)
        if start == end:
            return []
        ids = topic_ids_from(end)
        return _planned(self._reading, from_document(start), from_document(end), self._survey.logs(), ids)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, RangePartition)
        return _fetched(self._reading, partition.wanted)

    def stop(self) -> None:
        self._survey.close()

    def _arrived(self, position: dict[str, Any]) -> None:
        """Take over the position that Spark has told; Spark then also has the start in its checkpoint."""
        self._initial = self._initial or position
        self._progress.at(from_document(position), topic_ids_from(position))


class TopicReader(DataSourceReader):
    def __init__(self, reading: TopicReadOptions) -> None:
        self._reading = reading

    def partitions(self) -> Sequence[InputPartition]:
        survey = TopicSurvey(self._reading)
        try:
            logs = survey.logs()
            beginning = _begin(self._reading, survey, logs)
            if (
                self._reading.start.time_ms is not None
            ):  # A read of everything, which is repeated in every epoch, does not warn.
                _warn_of(beginning.late, self._reading.source)
            end = _end(self._reading.until or CAUGHT_UP, survey, logs)
            return _planned(self._reading, beginning.offsets, end, logs, _topic_ids(logs))
        finally:
            survey.close()

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """If nothing was planned, Spark still reads once, with None (4.1) or with a partition of its own (4.3)."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return _fetched(self._reading, partition.wanted)


def _fetched(reading: TopicReadOptions, wanted: OffsetRange) -> Iterator[Any]:
    yield from fetch_range(reading, wanted)
    lighten()


def _begin(reading: TopicReadOptions, survey: TopicSurvey, logs: dict[TopicPartition, LogBounds]) -> Beginning:
    """Where to begin without a checkpoint. Raises ClientError, NoSuchPartition or DataLost."""
    for name in survey.missing_topics(logs):
        raise Declined(Error.UNKNOWN_TOPIC_OR_PARTITION, subject=f"topic {name}")
    time_ms = reading.start.time_ms
    beginning = begin(reading.start, logs, {} if time_ms is None else survey.offsets_at(logs, time_ms))
    report(beginning.losses, reading.on_data_loss, reading.source)
    return beginning


def _warn_of(late: list[TruncatedTopic], source: str) -> None:
    for one in late:
        event = "pipeline.source_empty" if one.empty else "pipeline.source_begins_late"
        warn(event, source=source, topic=one.topic, records_removed=one.removed)


def _end(until: StartPosition, survey: TopicSurvey, logs: dict[TopicPartition, LogBounds]) -> PartitionOffsets:
    if until.time_ms is not None:
        return survey.offsets_at(logs, until.time_ms)
    return {partition: log.end for partition, log in logs.items()}


def _planned(
    reading: TopicReadOptions,
    start: PartitionOffsets,
    end: PartitionOffsets,
    logs: dict[TopicPartition, LogBounds],
    topic_ids: dict[str, bytes],
) -> list[InputPartition]:
    ranges, losses = ranges_between(start, end, logs, topic_ids)
    report(losses, reading.on_data_loss, reading.source)
    return [RangePartition(one) for one in split(ranges, reading.partitions_min or 1)]


def _topic_ids(logs: dict[TopicPartition, LogBounds]) -> dict[str, bytes]:
    return {partition.topic: log.topic_id for partition, log in logs.items()}


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
