"""Finds changes of a pipeline that its checkpoint does not survive.

Rule 1: the checkpoint holds the position of each source, the state of stateful steps, and the epochs that each task of
        each sink has finished. A change that gives any of these another meaning is refused.
Rule 2: the rows of a repeated epoch must go to the same tasks as before. So even an allowed change may only take effect
        when the last epoch is finished, which `checkpoint` checks.
Rule 3: in doubt a change is refused. A new name with a new checkpoint, or a replay, is always possible.
"""

from collections.abc import Iterator
from typing import Any

from ottla.pipelines.spec.columns import parse_columns
from ottla.pipelines.spec.graph import inputs_of, upstream
from ottla.pipelines.spec.keys import TableKey
from ottla.pipelines.spec.model import (
    Dedup,
    DeliveryGuarantee,
    FilesSource,
    MarkOnly,
    Ml,
    Pipeline,
    PythonFunction,
    Sink,
    Source,
    Sql,
    Stateful,
    Step,
    TopicSource,
)
from ottla.pipelines.spec.schemas import INFERRED
from ottla.pipelines.spec.sinks import kind_of
from ottla.pipelines.spec.sql import normal_query, read_query

WAY_OUT = "Undo the change, or start over with another name and another checkpoint."


def compare(old: Pipeline, new: Pipeline) -> list[str]:
    """The reasons why a checkpoint of `old` cannot be used with `new`, a sentence each; empty if it can."""
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
        yield f"Source {name} was removed, and the checkpoint holds its position."
    for name in sorted(after.keys() - before.keys()):
        yield f"Source {name} is new, and the checkpoint has no position for it."
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
    """State consists of rows: columns may be added, but none may be removed or change its type."""
    if old.parse != new.parse:
        yield f"Source {old.name} was {old.parse} and is {new.parse}, and steps after it keep state."
        return
    texts = [source.schema.text if source.schema is not None else "" for source in (old, new)]
    if old.parse not in INFERRED or not all(texts):
        return  # Spark compares the columns with its state and refuses what does not fit.
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
            yield f"Step {name} was removed, and the checkpoint holds its state."
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
        yield f"Step {old.name} no longer keeps the state that the checkpoint holds."
    elif _work(old) != _work(new):
        yield f"Step {old.name} keeps state and was changed: the state would not fit."
    elif old.inputs != new.inputs:
        yield f"Step {old.name} keeps state of {', '.join(old.inputs)} and now reads {', '.join(new.inputs)}."
    marks = [{mark.input: mark.column for mark in step.watermarks} for step in (old, new)]
    if marks[0] != marks[1]:
        yield f"Step {old.name} keeps state by a watermark, whose column has changed."


def _work(step: Step) -> object:
    return normal_query(step.work.query) if isinstance(step.work, Sql) else step.work


def _sinks(old: Pipeline, new: Pipeline) -> Iterator[str]:
    before = {sink.name: sink for sink in old.sinks}
    for sink in new.sinks:
        if sink.name not in before:
            yield f"Sink {sink.name} is new and would get nothing of what was read so far; a pipeline of its own would."
        else:
            yield from _sink(before[sink.name], sink)
            if _state_behind(old, before[sink.name]) != _state_behind(new, sink):
                yield f"Sink {sink.name} gets its rows through other stateful steps than before."


def _state_behind(pipeline: Pipeline, sink: Sink) -> set[str]:
    before = upstream(inputs_of(pipeline), [sink.input])
    return {step.name for step in pipeline.steps if step.name in before and keeps_state(step)}


def _sink(old: Sink, new: Sink) -> Iterator[str]:
    if type(old) is not type(new):
        yield f"Sink {old.name} is of another kind now."
        return
    kind = kind_of(new)
    was, now = (" ".join(map(str, kind.target(sink))) for sink in (old, new))
    if was != now:
        yield f"Sink {old.name} wrote to {was} and now to {now}: results would be divided over both."
    for key in kind.keys_where(lambda key: key.routes_rows):
        was, now = (_shown(key, getattr(sink, key.attribute)) for sink in (old, new))
        if was != now:
            change = f"{was} before, {now} now"
            yield f"Sink {old.name} has another {key.name} ({change}), which decides the task that writes a row."


def _shown(key: TableKey, value: Any) -> str:
    text = ", ".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
    return text or key.default_doc or "none"


def _delivery(old: Pipeline, new: Pipeline) -> Iterator[str]:
    if (old.delivery, new.delivery) == (DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE):
        yield "Delivery was at-least-once, so the sinks do not know which epochs they have."
