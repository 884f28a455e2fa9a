"""A spec to frames: what each sink's query computes.

Rule 1: each sink has a query of its own. Dead letters go with the rows of the first topic sink that reads from where
        they come, in its transactions; those that no topic sink would have are a query of their own.
Rule 2: a step that trains wants all rows so far, which no stream gives at once. A query that has one computes the rows
        before it as a stream, and the rest in every epoch, as a batch (`Training`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, reduce

from pyspark.sql import DataFrame

from ottla.pipelines.graph import in_order, inputs_of, upstream
from ottla.pipelines.identity import DEAD_LETTER_SINK
from ottla.pipelines.spark.functions import load
from ottla.pipelines.spark.records import dead_records, records_of, with_dead
from ottla.pipelines.spark.rows import Rows
from ottla.pipelines.spark.sources import Reading, read
from ottla.pipelines.spark.steps import apply_step
from ottla.pipelines.spec import Codec, Ml, Parse, Pipeline, Sink, Step, TopicSink, TopicSource


class BadTraining(Exception):
    """What comes after a step that trains needs more than its results."""


@dataclass(frozen=True)
class Training:
    """What is left to do in an epoch: train on all rows so far, and what comes after."""

    step: Step
    after: tuple[Step, ...]
    directory: str

    def results(self, rows: DataFrame, wanted: str) -> DataFrame:
        """The rows that the sink reads, of all rows that the training step has had."""
        assert isinstance(self.step.work, Ml), "only these train"
        frames = {self.step.name: Rows(load(self.step.work.train)(rows))}
        for step in self.after:
            spark = rows.sparkSession
            frames[step.name] = apply_step(spark, step, frames, directory=self.directory, keep_failures=False)
        return frames[wanted].frame


@dataclass(frozen=True)
class SinkQuery:
    sink: Sink
    frame: DataFrame
    """Of a topic sink: records, see there; of others their rows; before training, the rows to train on."""
    training: Training | None = None
    scans: int = 1
    """How many branches of the plan read the sources: the rows', and one for each that has dead letters."""
    has_dead_letters: bool = False


def build(pipeline: Pipeline, reading: Reading) -> list[SinkQuery]:
    """Raises what Spark raises of queries that it cannot understand."""
    tables = reading.tables is not None and any(isinstance(one, TopicSource) and one.table for one in pipeline.sources)
    shared = None if tables else _all_rows(pipeline, reading)

    @cache
    def rows_for(sink: str) -> dict[str, Rows]:
        return shared if shared is not None else _all_rows(pipeline, replace(reading, sink=sink))

    first = rows_for(pipeline.sinks[0].name)
    claimed = _claims(pipeline, {name for name, one in first.items() if one.dead is not None})
    queries = [_query(pipeline, reading, sink, rows_for(sink.name), claimed[sink.name]) for sink in pipeline.sinks]
    if left := claimed[DEAD_LETTER_SINK]:
        dead = _dead(pipeline, rows_for(DEAD_LETTER_SINK), left)
        queries.append(SinkQuery(dead_letter_sink(pipeline), dead, None, len(left), has_dead_letters=True))
    return queries


def dead_letter_sink(pipeline: Pipeline) -> TopicSink:
    """For dead letters that go with no other rows."""
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
        codec=Codec.NONE,
        batch_bytes=16 << 10,
        linger_ms=5,
        parallelism=1,
        transaction_timeout_ms=600_000,
    )


def _all_rows(pipeline: Pipeline, reading: Reading) -> dict[str, Rows]:
    """Of sources and of steps, but for those that train and those after them."""
    sources = {source.name: source for source in pipeline.sources}
    steps = {step.name: step for step in pipeline.steps}
    rows: dict[str, Rows] = {}
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
    """Whose dead letters each sink writes."""
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


def _query(pipeline: Pipeline, reading: Reading, sink: Sink, rows: Mapping[str, Rows], dead_of: list[str]) -> SinkQuery:
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


def _dead(pipeline: Pipeline, rows: Mapping[str, Rows], names: list[str]) -> DataFrame:
    frames = [rows[name].dead for name in names]
    found = [dead_records(frame, pipeline.errors.dead_letter, pipeline.name) for frame in frames if frame is not None]
    return reduce(DataFrame.unionByName, found)


def settled(query: SinkQuery, parallelism: Mapping[str, int]) -> SinkQuery:
    """With the parallelism that the first run settled."""
    if isinstance(query.sink, TopicSink):
        return replace(query, sink=replace(query.sink, parallelism=parallelism[query.sink.name]))
    return query
