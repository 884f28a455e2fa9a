"""Replays a pipeline over a span of the past: one epoch, computed as a batch, with its own identity and checkpoint.

Rule 1: the live run is not affected: the replay has its own transactional ids and publishes no offsets.
Rule 2: a replay is written once. If it is run again, sinks that have it are skipped. Another pipeline, another span or
        another name is another replay.
Rule 3: a replay is a single epoch, so `errors.max_rate` is checked before anything is written. Records that fail are
        counted first, which reads and parses the span once more.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Final

import pyspark
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from ottla.observe.trace import warn
from ottla.pipelines.authoring.document import spec_hash
from ottla.pipelines.run.checkpoint import Checkpoint, SinkStatus
from ottla.pipelines.run.failures import FailureRate, RestartBackoff, failure_of
from ottla.pipelines.sink import dead_letters
from ottla.pipelines.sink.writing import RunContext, writer_of
from ottla.pipelines.source.columns_read import columns_read
from ottla.pipelines.source.read_options import read_options_of
from ottla.pipelines.source.topic_survey import records_between
from ottla.pipelines.spark import topic_source
from ottla.pipelines.spark.build import SinkQuery, build, settled
from ottla.pipelines.spark.queries import GaveUp, Stopping
from ottla.pipelines.spark.run import RunOptions, new_status, run_name, settled_parallelism
from ottla.pipelines.spark.sources import SourceContext
from ottla.pipelines.spark.training import results
from ottla.pipelines.spec.identity import PipelineIdentity
from ottla.pipelines.spec.model import FilesSource, Pipeline
from ottla.pipelines.spec.paths import resolved
from ottla.pipelines.spec.record_columns import IS_DEAD

_EPOCH: Final = 0
_HASH_CHARACTERS: Final = 8


@dataclass(frozen=True)
class ReplaySpan:
    from_ms: int
    to_ms: int

    def replay_of(self, pipeline: Pipeline) -> str:
        """A name that depends on the pipeline and the span only."""
        return f"{self.from_ms}-{self.to_ms}-{spec_hash(pipeline)[:_HASH_CHARACTERS]}"

    @property
    def moments(self) -> tuple[str, str]:
        first, last = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (self.from_ms, self.to_ms))
        return first.strftime("%Y-%m-%dT%H:%M:%S"), last.strftime("%Y-%m-%dT%H:%M:%S")


def replay_checkpoint(pipeline: Pipeline, replay: str) -> str:
    return f"{pipeline.checkpoint.rstrip('/')}@{replay}"


class ReplayRun:
    """Runs a pipeline once over the records of a span of time. The constructor raises CheckpointRefused; `run` raises
    GaveUp if a sink cannot write its rows."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, options: RunOptions, span: ReplaySpan, replay: str
    ) -> None:
        self._spark, self._options, self._span, self._replay = spark, options, span, replay
        self._pipeline = replace(pipeline, checkpoint=replay_checkpoint(pipeline, replay))
        self._checkpoint = Checkpoint(resolved(options.directory, self._pipeline.checkpoint))
        self._kept = self._checkpoint.take(self._pipeline)
        self._stop = threading.Event()
        self.name = run_name()
        self.status = new_status(pipeline, self.name)

    def stop(self) -> None:
        """Stop before the next sink or the next attempt."""
        self._stop.set()

    def run(self, shown: Callable[..., None]) -> object:
        self._checkpoint.own(self.name)
        try:
            queries, run = self._prepared()
            self.status.sinks = {query.sink.name: SinkStatus() for query in queries}
            self.status.state = "running"
            self._check_failures(queries)
            for query in queries:
                self._write(query, run)
                self._checkpoint.tell(self.status)
                shown(self.status)
            self.status.state = "finished"
        except Stopping:
            self.status.state = "stopped"
        except BaseException as error:
            self.status.state = "failed"
            self.status.reason = str(error) if isinstance(error, GaveUp) else failure_of(error).reason
            raise
        finally:
            self._checkpoint.tell(self.status)
            shown(self.status)
        return self.status

    def _prepared(self) -> tuple[list[SinkQuery], RunContext]:
        spark, bootstrap, span = self._spark, self._options.bootstrap, self._span
        reading = SourceContext(
            spark,
            self._options.directory,
            lambda source: topic_source.read_between(
                spark, source, bootstrap, span.from_ms, span.to_ms, columns_read(self._pipeline, source)
            ),
            lambda source: topic_source.read_all(spark, source, bootstrap),
            dict[str, StructType](),
            keep_failures=bool(self._pipeline.errors.dead_letter),
            streaming=False,
            between=span.moments,
        )
        queries = build(self._pipeline, reading)
        parallelism = settled_parallelism(spark, self._pipeline, self._kept)
        kept = self._checkpoint.keep(self._pipeline, parallelism, {}, {"pyspark": pyspark.__version__})
        identity = PipelineIdentity(self._pipeline.name, self._replay)
        delivery, directory = self._pipeline.delivery, self._options.directory
        run = RunContext(identity, self.name, kept.checkpoint_id, bootstrap, delivery, directory)
        return [settled(query, parallelism) for query in queries], run

    def _check_failures(self, queries: list[SinkQuery]) -> None:
        """Count the records that fail, before anything is written. Raises TooManyFailures."""
        rows = [query.frame.where(IS_DEAD) for query in queries if query.has_dead_letters]
        if not rows:
            return
        dead = reduce(DataFrame.unionByName, rows)
        if failed := dead.count():
            rate = FailureRate(self._pipeline.errors.max_rate)
            rate.check_before(self._records(), failed, lambda: _reason(dead.first()))

    def _records(self) -> int:
        """The number of records in the span: offsets of topics, lines of files."""
        spark, span, count = self._spark, self._span, 0
        for source in self._pipeline.sources:
            if isinstance(source, FilesSource):
                after, before = span.moments
                lines = spark.read.text(
                    resolved(self._options.directory, source.path), modifiedAfter=after, modifiedBefore=before
                )
                count += lines.count()
            elif not source.table:
                count += records_between(read_options_of(source, self._options.bootstrap), span.from_ms, span.to_ms)
        return count

    def _write(self, query: SinkQuery, run: RunContext) -> None:
        status, back_off = self.status.sinks[query.sink.name], RestartBackoff()
        writer = writer_of(query.sink, run, self._spark)
        while True:
            if self._stop.is_set():
                raise Stopping
            try:
                writer.begin()
                outcome = writer.write(self._rows(query), _EPOCH)
                break
            except Exception as error:  # Spark or a sink may raise anything; `failure_of` judges it.
                failure = failure_of(error)
                wait_s = None if failure.fatal else back_off.failed()
                status.error = failure.reason
                if wait_s is None:
                    raise GaveUp(query.sink.name, failure) from error
                status.restarts += 1
                warn("pipeline.restarts", sink=query.sink.name, after_s=wait_s, reason=failure.reason)
                self._stop.wait(wait_s)
        status.epoch, status.error = _EPOCH, ""
        status.rows_written, status.dead_letters, status.epochs_skipped = outcome

    def _rows(self, query: SinkQuery) -> DataFrame:
        return query.frame if query.training is None else results(query, query.frame)


def _reason(letter: Row | None) -> str:
    assert letter is not None, "there is one at least"
    return next(str(header.value, "utf-8") for header in letter.headers if header.key == dead_letters.ERROR)
