"""Which changes of a pipeline its checkpoint does not survive.

Rule 1: the checkpoint holds where each source was read to, the state of steps that keep some, and which epochs each
        task of each sink has finished. A change that makes any of these mean something else is refused.
Rule 2: the rows of an epoch that is done again must go to the same tasks as before. So even a change that is allowed
        may only be taken up when the last epoch is finished; that is for the one who runs the pipeline to see to.
Rule 3: in doubt a change is refused: the way out (another name and checkpoint, a replay) loses nothing.
"""

from collections.abc import Iterator

from ottla.pipelines.columns import parse_columns
from ottla.pipelines.graph import inputs_of, upstream
from ottla.pipelines.schemas import INFERRED
from ottla.pipelines.spec import (
    Dedup,
    Delivery,
    FilesSource,
    MarkOnly,
    Ml,
    Pipeline,
    PostgresSink,
    PythonFunction,
    Sink,
    Source,
    Sql,
    Stateful,
    Step,
    TopicSink,
    TopicSource,
)
from ottla.pipelines.sql import normal_query, read_query

WAY_OUT = "Undo it, or start anew with another name and another checkpoint."


def compare(old: Pipeline, new: Pipeline) -> list[str]:
    """Why a checkpoint of `old` cannot go on with `new`, a sentence each; empty if it can."""
    if old.name != new.name:
        return [f"The checkpoint belongs to the pipeline {old.name}, not to {new.name}. Give each its own."]
    faults = [
        *_sources(old, new),
        *_steps(old, new),
        *_sinks(old, new),
        *_delivery(old, new),
    ]
    return [f"{fault} {WAY_OUT}" for fault in faults]


def keeps_state(step: Step) -> bool:
    match step.work:
        case Sql(query):
            return read_query(query).keeps_state
        case Dedup() | Stateful():
            return True
        case Ml(train=train):
            return bool(train)
        case PythonFunction() | MarkOnly():
            return False


def _sources(old: Pipeline, new: Pipeline) -> Iterator[str]:
    before = {source.name: source for source in old.sources}
    after = {source.name: source for source in new.sources}
    for name in sorted(before.keys() - after.keys()):
        yield f"Source {name} is gone, and the checkpoint says how far it was read."
    for name in sorted(after.keys() - before.keys()):
        yield f"Source {name} is new, and the checkpoint says nothing of it."
    inputs = inputs_of(new)
    stateful = upstream(inputs, [step.name for step in new.steps if keeps_state(step)])
    for name in sorted(before.keys() & after.keys()):
        yield from _source(before[name], after[name], has_state=name in stateful)


def _source(old: Source, new: Source, has_state: bool) -> Iterator[str]:
    match old, new:
        case TopicSource(), TopicSource():
            yield from _topic_source(old, new)
        case FilesSource(), FilesSource():
            if old.path != new.path:
                yield f"Source {old.name} read the files {old.path} and now {new.path}."
        case _:
            yield f"Source {old.name} was {_kind(old)} and is {_kind(new)}."
    if has_state:
        yield from _columns(old, new)


def _topic_source(old: TopicSource, new: TopicSource) -> Iterator[str]:
    if gone := [topic for topic in old.topics if topic not in new.topics]:
        if new.pattern:
            yield f"Source {old.name} read {', '.join(old.topics)} and now the pattern {new.pattern}."
        else:
            yield f"Source {old.name} no longer reads {', '.join(gone)}, whose records may not all have been read."
    if old.pattern and old.pattern != new.pattern:
        yield f"Source {old.name} read the pattern {old.pattern} and now {new.pattern or ', '.join(new.topics)}."
    if old.table != new.table:
        kinds = {True: "a table", False: "a stream"}
        yield f"Source {old.name} was read as {kinds[old.table]} and is {kinds[new.table]}."
    if old.start != new.start:
        yield f"Source {old.name} has another start, which counts only where there is no checkpoint yet."


def _kind(source: Source) -> str:
    return "topics" if isinstance(source, TopicSource) else "files"


def _columns(old: Source, new: Source) -> Iterator[str]:
    """State is kept in rows; columns may come, but none may go or change under it."""
    if old.parse != new.parse:
        yield f"Source {old.name} was {old.parse} and is {new.parse}, and steps after it keep state."
        return
    texts = [source.schema.text if source.schema is not None else "" for source in (old, new)]
    if old.parse not in INFERRED or not all(texts):
        return  # Spark compares them with its state, and refuses by itself.
    after = {column.name.lower(): column.type for column in parse_columns(texts[1])}
    for column in parse_columns(texts[0]):
        kind = after.get(column.name.lower())
        if kind is None:
            yield f"Source {old.name} has no column {column.name} any more, and steps after it keep state."
        elif kind != column.type:
            yield f"Source {old.name}: column {column.name} was {column.type} and is {kind}, and steps keep state."


def _steps(old: Pipeline, new: Pipeline) -> Iterator[str]:
    before = {step.name: step for step in old.steps}
    after = {step.name: step for step in new.steps}
    for name, step in before.items():
        if keeps_state(step) and name not in after:
            yield f"Step {name} is gone, and the checkpoint holds its state."
    for name, step in after.items():
        if name not in before:
            if keeps_state(step):
                yield f"Step {name} is new and keeps state, of which the checkpoint has none."
        elif keeps_state(step) or keeps_state(before[name]):
            yield from _stateful_step(before[name], step)


def _stateful_step(old: Step, new: Step) -> Iterator[str]:
    if not keeps_state(old):
        yield f"Step {old.name} keeps state now, of which the checkpoint has none."
    elif not keeps_state(new) or type(old.work) is not type(new.work):
        yield f"Step {old.name} does something else now, and the checkpoint holds its state."
    elif _work(old) != _work(new):
        yield f"Step {old.name} keeps state and was changed: the state would not fit."
    elif old.inputs != new.inputs:
        yield f"Step {old.name} keeps state of {', '.join(old.inputs)} and now reads {', '.join(new.inputs)}."
    marks = [{mark.input: mark.column for mark in step.watermarks} for step in (old, new)]
    if marks[0] != marks[1]:
        yield f"Step {old.name} keeps state by the time of a watermark, and that is another column now."


def _work(step: Step) -> object:
    return normal_query(step.work.query) if isinstance(step.work, Sql) else step.work


def _sinks(old: Pipeline, new: Pipeline) -> Iterator[str]:
    before = {sink.name: sink for sink in old.sinks}
    for sink in new.sinks:
        if sink.name not in before:
            yield f"Sink {sink.name} is new and gets nothing of what was read so far; a pipeline of its own would."
        else:
            yield from _sink(before[sink.name], sink)
            if _state_behind(old, before[sink.name]) != _state_behind(new, sink):
                yield f"Sink {sink.name} gets its rows by way of other steps that keep state than before."


def _state_behind(pipeline: Pipeline, sink: Sink) -> set[str]:
    before = upstream(inputs_of(pipeline), [sink.input])
    return {step.name for step in pipeline.steps if step.name in before and keeps_state(step)}


def _sink(old: Sink, new: Sink) -> Iterator[str]:
    if type(old) is not type(new):
        yield f"Sink {old.name} is of another kind now."
        return
    if _target(old) != _target(new):
        yield f"Sink {old.name} wrote to {_target(old)} and now to {_target(new)}: results would be divided over both."
    if isinstance(old, TopicSink) and isinstance(new, TopicSink):
        if old.key != new.key:
            keys = [", ".join(sink.key) or "none" for sink in (old, new)]
            yield f"Sink {old.name} has another key ({keys[0]} before, {keys[1]} now), by which rows find their task."
        if old.parallelism != new.parallelism:
            counts = [str(sink.parallelism or "settled by the first run") for sink in (old, new)]
            was, now = counts
            yield f"Sink {old.name} has another parallelism ({was} before, {now} now), by which rows find their task."


def _target(sink: Sink) -> str:
    if isinstance(sink, TopicSink):
        return sink.topic
    if isinstance(sink, PostgresSink):
        return f"{sink.url} {sink.table}"
    return getattr(sink, "path", "the console")


def _delivery(old: Pipeline, new: Pipeline) -> Iterator[str]:
    if (old.delivery, new.delivery) == (Delivery.AT_LEAST_ONCE, Delivery.EXACTLY_ONCE):
        yield "Delivery was at-least-once, so nothing says which epochs the sinks have whole."
