"""Topics as a source of Spark: the Python data source `ottla-topic`, for streams and for what lies between two times.

Rule 1: Spark keeps the position in its checkpoint and tells it at every start, before it asks where the topics end:
        as the end of the epoch that it does again, or as an epoch that begins where it ends.
Rule 2: a query without a checkpoint begins with an epoch that reads nothing. It writes down where the pipeline begins:
        Spark does not, and would ask again when the first epoch is done again, though `latest` is elsewhere by then.
Rule 3: planning is done on the driver, with connections of its own; a task gets one range and fetches it by itself.
Rule 4: a stream that is to end (`until`) ends where the topics did when it began, or at a time: it has no more new
        records then, and `processAllAvailable` returns. Spark's trigger `availableNow` is not for it: it would take
        the first epoch for all there is.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from ottla.client.core.errors import Declined
from ottla.client.core.names import TopicPartition
from ottla.observe.trace import warn
from ottla.pipelines.allowance import Allowance
from ottla.pipelines.losses import report
from ottla.pipelines.python_workers import lighten
from ottla.pipelines.ranges import (
    Log,
    Offsets,
    Progress,
    Range,
    Until,
    from_document,
    ranges_between,
    split,
    to_document,
    topic_ids_from,
)
from ottla.pipelines.reading import COLUMNS as ALL_COLUMNS
from ottla.pipelines.reading import LATEST, Reading, from_options, reading_of, to_options
from ottla.pipelines.spark.registering import register
from ottla.pipelines.spec import Start, TopicSource
from ottla.pipelines.starts import Beginning, Late, begin
from ottla.pipelines.topic_fetcher import fetch_range
from ottla.pipelines.topic_survey import TopicSurvey
from ottla.wire.errors import Error

FORMAT: Final = "ottla-topic"
_TYPES: Final = {
    "_key": "BINARY",
    "_value": "BINARY",
    "_topic": "STRING",
    "_partition": "INT",
    "_offset": "BIGINT",
    "_timestamp": "TIMESTAMP",
    "_headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
COLUMNS: Final = ", ".join(f"{name} {kind}" for name, kind in _TYPES.items())
CAUGHT_UP: Final = Start(LATEST)
"""For `until`: read what there is, and no more."""


def read_stream(
    spark: SparkSession,
    source: TopicSource,
    bootstrap: str,
    *,
    until: Start | None = None,
    columns: tuple[str, ...] = ALL_COLUMNS,
) -> DataFrame:
    """The records of a source as they come, from its start or from the checkpoint of the query."""
    register(spark, TopicDataSource)
    reading = reading_of(source, bootstrap, until=until, columns=columns)
    return spark.readStream.format(FORMAT).options(**to_options(reading)).load()


def read_between(
    spark: SparkSession,
    source: TopicSource,
    bootstrap: str,
    from_ms: int,
    to_ms: int,
    columns: tuple[str, ...] = ALL_COLUMNS,
) -> DataFrame:
    """In each partition, the records from the first at or after one time to before the first at or after the other."""
    start, until = Start("", from_ms), Start("", to_ms)
    return _read(spark, reading_of(source, bootstrap, start=start, until=until, columns=columns))


def read_all(spark: SparkSession, source: TopicSource, bootstrap: str) -> DataFrame:
    """All that its topics hold each time the frame is computed."""
    return _read(spark, reading_of(source, bootstrap, start=Start(), until=CAUGHT_UP))


def _read(spark: SparkSession, reading: Reading) -> DataFrame:
    register(spark, TopicDataSource)
    return spark.read.format(FORMAT).options(**to_options(reading)).load()


class TopicDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ", ".join(f"{name} {_TYPES[name]}" for name in from_options(self.options).columns)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802, ARG002  # Spark's name.
        return TopicStreamReader(from_options(self.options))

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
        return TopicReader(from_options(self.options))


class RangePartition(InputPartition):
    """A range, on its way to the task that reads it."""

    def __init__(self, wanted: Range) -> None:
        self.wanted = wanted


class TopicStreamReader(DataSourceStreamReader):
    """Lives as long as the query, in a process beside the driver; tasks get copies that know what to read only."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._survey = TopicSurvey(reading)
        self._progress = Progress()
        self._allowance = Allowance(reading.records_per_batch_max, reading.records_per_second_max)
        self._initial: dict[str, Any] | None = None
        self._until: Until | None = None

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
            self._until = Until(_end(self._reading.until, self._survey, logs))
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
        """Spark has told where the query is, so it has written down where it began."""
        self._initial = self._initial or position
        self._progress.at(from_document(position), topic_ids_from(position))


class TopicReader(DataSourceReader):
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def partitions(self) -> Sequence[InputPartition]:
        survey = TopicSurvey(self._reading)
        try:
            logs = survey.logs()
            beginning = _begin(self._reading, survey, logs)
            if (
                self._reading.start.time_ms is not None
            ):  # Who reads all there is, epoch after epoch, takes what there is.
                _warn_of(beginning.late, self._reading.source)
            end = _end(self._reading.until or CAUGHT_UP, survey, logs)
            return _planned(self._reading, beginning.offsets, end, logs, _topic_ids(logs))
        finally:
            survey.close()

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Where nothing was planned Spark still reads once, with None (4.1) or with a partition of its own (4.3)."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return _fetched(self._reading, partition.wanted)


def _fetched(reading: Reading, wanted: Range) -> Iterator[Any]:
    yield from fetch_range(reading, wanted)
    lighten()


def _begin(reading: Reading, survey: TopicSurvey, logs: dict[TopicPartition, Log]) -> Beginning:
    """Where to begin without a checkpoint. Raises ClientError, NoSuchPartition or DataLost."""
    for name in survey.missing_topics(logs):
        raise Declined(Error.UNKNOWN_TOPIC_OR_PARTITION, subject=f"topic {name}")
    time_ms = reading.start.time_ms
    beginning = begin(reading.start, logs, {} if time_ms is None else survey.offsets_at(logs, time_ms))
    report(beginning.losses, reading.on_data_loss, reading.source)
    return beginning


def _warn_of(late: list[Late], source: str) -> None:
    for one in late:
        event = "pipeline.source_empty" if one.empty else "pipeline.source_begins_late"
        warn(event, source=source, topic=one.topic, records_removed=one.removed)


def _end(until: Start, survey: TopicSurvey, logs: dict[TopicPartition, Log]) -> Offsets:
    if until.time_ms is not None:
        return survey.offsets_at(logs, until.time_ms)
    return {partition: log.end for partition, log in logs.items()}


def _planned(
    reading: Reading, start: Offsets, end: Offsets, logs: dict[TopicPartition, Log], topic_ids: dict[str, bytes]
) -> list[InputPartition]:
    ranges, losses = ranges_between(start, end, logs, topic_ids)
    report(losses, reading.on_data_loss, reading.source)
    return [RangePartition(one) for one in split(ranges, reading.partitions_min or 1)]


def _topic_ids(logs: dict[TopicPartition, Log]) -> dict[str, bytes]:
    return {partition.topic: log.topic_id for partition, log in logs.items()}


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
