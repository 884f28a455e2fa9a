"""Builds the data frames of a spec: one for the query of each sink.

Rule 1: each sink has its own query. Dead letters of a source or step are written by the first topic sink that reads
        from it, in its transactions. If there is no such sink, they have a query of their own.
Rule 2: a step that trains needs all rows so far, which a stream does not give. Its query computes the rows before the
        step as a stream, and the rest as a batch in every epoch (`Training`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, reduce

from pyspark.sql import DataFrame

from ottla.pipelines.spark.functions import load
from ottla.pipelines.spark.records import dead_records, records_of, with_dead
from ottla.pipelines.spark.rows import StepRows
from ottla.pipelines.spark.sources import SourceContext, read
from ottla.pipelines.spark.steps import apply_step
from ottla.pipelines.spec.graph import in_order, inputs_of, upstream
from ottla.pipelines.spec.identity import DEAD_LETTER_SINK
from ottla.pipelines.spec.model import Compression, Ml, Parse, Pipeline, Sink, Step, TopicSink, TopicSource


class BadTraining(Exception):
    """A step after a training step reads rows that are not the results of the training."""


@dataclass(frozen=True)
class Training:
    """The batch part of an epoch: the step that trains on all rows so far, and the steps after it."""

    step: Step
    after: tuple[Step, ...]
    directory: str

    def results(self, rows: DataFrame, wanted: str) -> DataFrame:
        """The rows for the sink, computed from all rows that the training step has received."""
        assert isinstance(self.step.work, Ml), "only these train"
        frames = {self.step.name: StepRows(load(self.step.work.train)(rows))}
        for step in self.after:
            spark = rows.sparkSession
            frames[step.name] = apply_step(spark, step, frames, directory=self.directory, keep_failures=False)
        return frames[wanted].frame


@dataclass(frozen=True)
class SinkQuery:
    sink: Sink
    frame: DataFrame
    """Records for a topic sink, rows for others. With `training`, the rows to train on."""
    training: Training | None = None
    scans: int = 1
    """How often the plan reads the sources: once for the rows, and once for each input that has dead letters."""
    has_dead_letters: bool = False


def build(pipeline: Pipeline, reading: SourceContext) -> list[SinkQuery]:
    """The queries of all sinks, and of dead letters if they need one. Raises Spark's AnalysisException and others."""
    tables = reading.tables is not None and any(isinstance(one, TopicSource) and one.table for one in pipeline.sources)
    shared = None if tables else _all_rows(pipeline, reading)

    @cache
    def rows_for(sink: str) -> dict[str, StepRows]:
        return shared if shared is not None else _all_rows(pipeline, replace(reading, sink=sink))

    first = rows_for(pipeline.sinks[0].name)
    claimed = _claims(pipeline, {name for name, one in first.items() if one.dead is not None})
    queries = [_query(pipeline, reading, sink, rows_for(sink.name), claimed[sink.name]) for sink in pipeline.sinks]
    if left := claimed[DEAD_LETTER_SINK]:
        dead = _dead(pipeline, rows_for(DEAD_LETTER_SINK), left)
        queries.append(SinkQuery(dead_letter_sink(pipeline), dead, None, len(left), has_dead_letters=True))
    return queries


def dead_letter_sink(pipeline: Pipeline) -> TopicSink:
    """The sink for dead letters that no topic sink writes."""
    return TopicSink(
        name=DEAD_LETTER_SINK,
        input="",
        topic=pipeline.errors.dead_letter,
        key=(),
        headers=(),
        serialise=Parse.BYTES,
        schema=None,
        message="",
        partitioner="default",
        codec=Compression.NONE,
        batch_bytes=16 << 10,
        linger_ms=5,
        parallelism=1,
        transaction_timeout_ms=600_000,
    )


def _all_rows(pipeline: Pipeline, reading: SourceContext) -> dict[str, StepRows]:
    """The rows of all sources and steps, except steps that train and those after them."""
    sources = {source.name: source for source in pipeline.sources}
    steps = {step.name: step for step in pipeline.steps}
    rows: dict[str, StepRows] = {}
    for name in in_order(inputs_of(pipeline)):
        if name in sources:
            rows[name] = read(reading, sources[name])
            continue
        step = steps[name]
        if all(read_from in rows for read_from in step.inputs) and not _trains(step):
            rows[name] = apply_step(
                reading.spark, step, rows, directory=reading.directory, keep_failures=reading.keep_failures
            )
    return rows


def _trains(step: Step) -> bool:
    return isinstance(step.work, Ml) and bool(step.work.train)


def _claims(pipeline: Pipeline, failing: set[str]) -> Mapping[str, list[str]]:
    """The sources and steps whose dead letters each sink writes."""
    inputs = inputs_of(pipeline)
    training = {step.name for step in pipeline.steps if _trains(step)}
    claimed: dict[str, list[str]] = {name: [] for name in (*(sink.name for sink in pipeline.sinks), DEAD_LETTER_SINK)}
    for name in sorted(failing):
        takers = (
            sink.name
            for sink in pipeline.sinks
            if isinstance(sink, TopicSink)
            and name in (before := upstream(inputs, [sink.input]))
            and not training & before
        )
        claimed[next(takers, DEAD_LETTER_SINK)].append(name)
    return claimed


def _query(
    pipeline: Pipeline, reading: SourceContext, sink: Sink, rows: Mapping[str, StepRows], dead_of: list[str]
) -> SinkQuery:
    inputs = inputs_of(pipeline)
    before = upstream(inputs, [sink.input])
    if sink.input in rows:
        frame = rows[sink.input].frame
        if isinstance(sink, TopicSink):
            frame = records_of(frame, sink)
            if dead_of:
                frame = with_dead(frame, sink.topic, _dead(pipeline, rows, dead_of))
        return SinkQuery(sink, frame, None, 1 + len(dead_of), bool(dead_of))
    steps = {step.name: step for step in pipeline.steps}
    late = [steps[name] for name in in_order(inputs) if name in before and name not in rows]
    known = {step.name for step in late}
    for step in late[1:]:
        if _trains(step) or not known.issuperset(step.inputs):
            raise BadTraining(
                f"sink {sink.name}: step {step.name} comes after {late[0].name}, which trains, and may neither "
                "train nor read anything but its results; give it a pipeline of its own"
            )
    training = Training(late[0], tuple(late[1:]), reading.directory)
    return SinkQuery(sink, rows[late[0].inputs[0]].frame, training)


def _dead(pipeline: Pipeline, rows: Mapping[str, StepRows], names: list[str]) -> DataFrame:
    frames = [rows[name].dead for name in names]
    found = [dead_records(frame, pipeline.errors.dead_letter, pipeline.name) for frame in frames if frame is not None]
    return reduce(DataFrame.unionByName, found)


def settled(query: SinkQuery, parallelism: Mapping[str, int]) -> SinkQuery:
    """The query with the parallelism that the first run settled."""
    if isinstance(query.sink, TopicSink):
        return replace(query, sink=replace(query.sink, parallelism=parallelism[query.sink.name]))
    return query
