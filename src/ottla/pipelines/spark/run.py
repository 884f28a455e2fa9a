"""Runs a pipeline: a query for each sink, and one status for all of them.

Rule 1: what the first run settles (parallelism, inferred columns) is in the checkpoint before the first epoch begins.
Rule 2: a sink's query that fails is restarted. A query that fails for good ends the whole run: otherwise the other
        sinks would get ahead of it unnoticed.
Rule 3: positions are published after epochs: for each partition the lowest position of the queries that read it.
"""

import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ottla.observe.trace import trace
from ottla.pipelines.authoring.document import spec_hash
from ottla.pipelines.run.checkpoint import Checkpoint, CheckpointFacts, RunStatus
from ottla.pipelines.run.failures import FailureRate, failure_of
from ottla.pipelines.run.process import process_started
from ottla.pipelines.sink.writing import RunContext
from ottla.pipelines.source.columns_read import columns_read
from ottla.pipelines.spark import topic_source
from ottla.pipelines.spark.build import SinkQuery, build, dead_letter_sink, settled
from ottla.pipelines.spark.queries import GaveUp, QueryRun
from ottla.pipelines.spark.sources import SourceContext
from ottla.pipelines.spark.table_source import read_table
from ottla.pipelines.spark.watch import LagMonitor
from ottla.pipelines.spec.identity import PipelineIdentity
from ottla.pipelines.spec.model import Pipeline, TopicSink, TopicSource
from ottla.pipelines.spec.paths import resolved

LOOK_S: Final = 0.2
TELL_S: Final = 1.0
PARALLELISM_MAX: Final = 32
_STARTING_MAX: Final = os.cpu_count() or 1
"""How many queries start at the same time. Each starts a process for which Spark waits ten seconds at most: if many
start together on a busy machine, all of them fail."""

Shown = Callable[[RunStatus], None]


@dataclass(frozen=True)
class RunOptions:
    directory: str
    """The directory of the pipeline's file. Paths in the pipeline are relative to it."""
    bootstrap: str
    once: bool = False


class PipelineRun:
    """One run of a pipeline. The constructor raises CheckpointRefused; `run` raises GaveUp if a sink fails for good."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, options: RunOptions) -> None:
        self._spark, self._pipeline, self._options = spark, pipeline, options
        self._checkpoint = Checkpoint(resolved(options.directory, pipeline.checkpoint))
        self._kept = self._checkpoint.take(pipeline)
        self.name = run_name()
        self._stop = threading.Event()
        self._rate = FailureRate(pipeline.errors.max_rate)
        self.status = new_status(pipeline, self.name)
        self._queries: list[QueryRun] = []

    def stop(self) -> None:
        """Ask the run to stop, from any thread or a signal handler."""
        self._stop.set()

    def run(self, shown: Shown) -> RunStatus:
        """Run until everything is done, a stop is asked for, or a sink fails. `shown` gets the status now and then."""
        self._checkpoint.own(self.name)
        try:
            self._tell(shown)
            self._begin()
            self.status.state = "running"
            self._attend(shown)
            self.status.state = "finished" if self._all_done else "stopped"
        except BaseException as error:
            self.status.state = "failed"
            self.status.reason = str(error) if isinstance(error, GaveUp) else failure_of(error).reason
            raise
        finally:
            self._end()
            self._tell(shown)
        return self.status

    def _begin(self) -> None:
        queries, kept = self._prepared()
        identity = PipelineIdentity(self._pipeline.name)
        run = RunContext(
            identity,
            self.name,
            kept.checkpoint_id,
            self._options.bootstrap,
            self._pipeline.delivery,
            self._options.directory,
        )
        self._queries = [
            QueryRun(settled(query, kept.parallelism), run, self._checkpoint, self._spark, once=self._options.once)
            for query in queries
        ]
        self.status.sinks = {query.name: query.status for query in self._queries}
        topics = [source for source in self._pipeline.sources if isinstance(source, TopicSource) and not source.table]
        self._watch = LagMonitor(identity.group_id, self._options.bootstrap, topics)
        trace("pipeline.begins", pipeline=self._pipeline.name, run=self.name, sinks=list(self.status.sinks))

    def _prepared(self) -> tuple[list[SinkQuery], CheckpointFacts]:
        columns = {name: StructType.fromJson(json.loads(text)) for name, text in self._columns_kept().items()}
        reading = live_reading(self._spark, self._pipeline, self._options, self._checkpoint, columns)
        queries = build(self._pipeline, reading)
        kept = self._checkpoint.keep(
            self._pipeline,
            settled_parallelism(self._spark, self._pipeline, self._kept),
            {name: found.json() for name, found in reading.columns.items()},
            {"pyspark": pyspark.__version__},
        )
        return queries, kept

    def _columns_kept(self) -> dict[str, str]:
        return dict(self._kept.columns) if self._kept is not None else {}

    @property
    def _all_done(self) -> bool:
        return bool(self._queries) and all(query.done for query in self._queries)

    def _attend(self, shown: Shown) -> None:
        told_at = 0.0
        while not self._all_done and not self._stop.is_set() and not self._checkpoint.stop_asked:
            for query in self._queries:
                query.attend(may_start=sum(one.is_starting for one in self._queries) < _STARTING_MAX)
            self._look_at_failures()
            if time.monotonic() - told_at >= TELL_S:
                told_at = time.monotonic()
                self._watch.consumed([query.consumed for query in self._queries])
                self._tell(shown)
            self._stop.wait(LOOK_S)

    def _look_at_failures(self) -> None:
        if self._pipeline.errors.dead_letter:
            read = max((query.status.records_read for query in self._queries), default=0)
            self._rate.check(read, sum(query.dead_of_read for query in self._queries))

    def _end(self) -> None:
        for query in self._queries:
            query.stop()
        if self._queries:
            self._watch.consumed([query.consumed for query in self._queries])
            self._watch.close()

    def _tell(self, shown: Shown) -> None:
        self.status.updated_ms = _now_ms()
        if self._queries and (lag := self._watch.lag) is not None:
            self.status.lag_records, self.status.lag_ms = lag
        self._checkpoint.tell(self.status)
        shown(self.status)


def live_reading(
    spark: SparkSession,
    pipeline: Pipeline,
    options: RunOptions,
    checkpoint: Checkpoint,
    columns: dict[str, StructType],
) -> SourceContext:
    until = topic_source.CAUGHT_UP if options.once else None
    return SourceContext(
        spark,
        options.directory,
        lambda source: topic_source.read_stream(
            spark, source, options.bootstrap, until=until, columns=columns_read(pipeline, source)
        ),
        lambda source: topic_source.read_all(spark, source, options.bootstrap),
        columns,
        keep_failures=bool(pipeline.errors.dead_letter),
        tables=lambda sink, source: read_table(spark, source, options.bootstrap, checkpoint, sink),
    )


def settled_parallelism(spark: SparkSession, pipeline: Pipeline, kept: CheckpointFacts | None) -> dict[str, int]:
    """Each topic sink's number of tasks: from the spec, else from the first run, else as many as run at a time."""
    default = min(spark.sparkContext.defaultParallelism, PARALLELISM_MAX)
    before = dict(kept.parallelism) if kept is not None else {}
    sinks = [sink for sink in (*pipeline.sinks, dead_letter_sink(pipeline)) if isinstance(sink, TopicSink)]
    return {sink.name: sink.parallelism or before.get(sink.name, default) for sink in sinks}


def run_name() -> str:
    """A name for a new run that sorts after those of earlier runs."""
    return f"{_now_ms():013d}-{secrets.token_hex(4)}"


def new_status(pipeline: Pipeline, run: str) -> RunStatus:
    return RunStatus(
        pipeline=pipeline.name,
        run=run,
        hash=spec_hash(pipeline),
        state="starting",
        pid=os.getpid(),
        pid_started=process_started(os.getpid()) or 0.0,
        host=platform.node(),
        started_ms=_now_ms(),
    )


def _now_ms() -> int:
    return int(time.time() * 1000)
