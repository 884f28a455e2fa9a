"""Checks across the parts of a pipeline, after each part has been checked by itself."""

from collections.abc import Iterator

import re2

from ottla.pipelines.authoring.draft import PipelineDraft
from ottla.pipelines.spec.columns import SqlColumn, parse_columns
from ottla.pipelines.spec.graph import cycle, upstream
from ottla.pipelines.spec.identity import DEAD_LETTER_SINK
from ottla.pipelines.spec.model import (
    Dedup,
    DeliveryGuarantee,
    MarkOnly,
    Ml,
    PythonFunction,
    Sink,
    Source,
    Sql,
    Stateful,
    TimeMode,
    TopicSink,
    TopicSource,
)
from ottla.pipelines.spec.problems import Findings, Path, did_you_mean
from ottla.pipelines.spec.record_columns import META_COLUMNS
from ottla.pipelines.spec.schemas import INFERRED, columns_of
from ottla.pipelines.spec.sinks import kind_of
from ottla.pipelines.spec.values import COLUMN_NAMES


def check(draft: PipelineDraft, findings: Findings) -> None:
    inputs = dict.fromkeys(draft.sources, ()) | {
        one.name: one.step.inputs if one.step is not None else () for one in draft.steps
    }
    _names(draft, findings)
    _references(draft, findings)
    if way := cycle(inputs):
        step = next(one for one in draft.steps if one.name in way)
        findings.add(step.path, None, f"steps read each other in a cycle: {' -> '.join(way)}")
        return
    if draft.is_whole() and not findings.problems:
        _everything_is_used(draft, inputs, findings)
    _columns(draft, findings)
    _watermarks(draft, inputs, findings)
    _repeatable(draft, inputs, findings)
    _no_loops(draft, findings)
    _targets(draft, findings)


def _names(draft: PipelineDraft, findings: Findings) -> None:
    seen: dict[str, str] = {}
    paths: list[tuple[str, Path]] = [(name, ("source", name)) for name in draft.sources]
    paths += [(one.name, (*one.path, "name")) for one in draft.steps]
    for name, path in paths:
        if name.lower() in seen:
            what = "a source" if path[0] == "source" else "another source or step"
            told = f"{what} has this name already (queries ignore case)"
            findings.add(path, name, told)
        seen[name.lower()] = name
    if DEAD_LETTER_SINK in draft.sinks:
        findings.add(("sink", DEAD_LETTER_SINK), None, "this name is reserved for dead letters; choose another one")


def _references(draft: PipelineDraft, findings: Findings) -> None:
    known = draft.names()
    allowed = ", ".join(known)
    for one in draft.steps:
        for named in one.query.tables if one.query is not None else ():
            if draft.spelt(named.name) not in known:
                told = f"no source or step is called {named.name}; there are {allowed}{did_you_mean(named.name, known)}"
                findings.add((*one.path, "sql"), None, told, allowed, named.line)
        if one.query is not None and not one.query.tables:
            findings.add(
                (*one.path, "sql"), None, f"the query reads no source and no step; there are {allowed}", allowed
            )
        if one.step is not None and one.query is None and one.step.inputs[0] not in known:
            _unknown((*one.path, "input"), one.step.inputs[0], known, findings)
    for name, sink in draft.sinks.items():
        if sink is not None and sink.input not in known:
            _unknown(("sink", name, "input"), sink.input, known, findings)


def _unknown(path: Path, name: str, known: list[str], findings: Findings) -> None:
    told = f"no source or step has this name; there are {', '.join(known)}{did_you_mean(name, known)}"
    findings.add(path, name, told, ", ".join(known))


def _everything_is_used(draft: PipelineDraft, inputs: dict[str, tuple[str, ...]], findings: Findings) -> None:
    used = upstream(inputs, [sink.input for sink in draft.sinks.values() if sink is not None])
    for name in draft.sources:
        if name not in used:
            findings.add(("source", name), None, "no sink gets rows from it; remove it, or read it in a step")
    for one in draft.steps:
        if one.name not in used:
            findings.add(one.path, None, f"no sink gets rows from {one.name}; remove it, or name it as an input")


def _columns(draft: PipelineDraft, findings: Findings) -> None:
    known, types = _known_columns(draft), _known_types(draft)
    for one in draft.steps:
        if one.step is None:
            continue
        for place, mark in enumerate(one.step.watermarks):
            path: Path = (*one.path, "watermark", "column")
            if len(one.step.watermarks) > 1:
                path = (*one.path, "watermark", place, "column")
            _has(known.get(mark.input), mark.input, (mark.column,), path, findings)
            kind = types.get(mark.input, {}).get(mark.column.lower(), "TIMESTAMP")
            if not kind.startswith(("TIMESTAMP", "STRUCT")):  # A window is a struct of times.
                told = f"is {kind}, and a watermark needs times; declare it as TIMESTAMP, or convert it in a query"
                findings.add(path, mark.column, told, "a column of type TIMESTAMP")
        work = one.step.work
        if isinstance(work, Dedup):
            _has(known.get(one.step.inputs[0]), one.step.inputs[0], work.columns, (*one.path, "dedup"), findings)
        if isinstance(work, Stateful):
            _has(known.get(one.step.inputs[0]), one.step.inputs[0], work.keys, (*one.path, "keys"), findings)
    for name, sink in draft.sinks.items():
        if sink is not None:
            for key, columns in _sink_columns(sink):
                _has(known.get(sink.input), sink.input, columns, ("sink", name, key), findings)


def _sink_columns(sink: Sink) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The keys of a sink that name columns, with the columns."""
    for key in kind_of(sink).keys_where(lambda key: key.kind is COLUMN_NAMES):
        yield key.name, getattr(sink, key.attribute)


def _known_columns(draft: PipelineDraft) -> dict[str, tuple[str, ...] | None]:
    """The columns of sources and steps; None if only Spark can tell, as after a query."""
    known: dict[str, tuple[str, ...] | None] = {name: _source_columns(one) for name, one in draft.sources.items()}
    for _ in draft.steps:  # A step may be declared before its input.
        for one in draft.steps:
            step = one.step
            if step is None or isinstance(step.work, Sql) or (isinstance(step.work, Ml) and not step.work.train):
                known[one.name] = None
            elif isinstance(step.work, Dedup | MarkOnly):
                known[one.name] = known.get(step.inputs[0])
            elif isinstance(step.work, PythonFunction | Stateful | Ml):
                known[one.name] = tuple(column.name for column in step.work.schema)
    return known


def _known_types(draft: PipelineDraft) -> dict[str, dict[str, str]]:
    """The types of declared columns, by source or step and by lower-case column name."""
    written: dict[str, tuple[SqlColumn, ...]] = {}
    for name, source in draft.sources.items():
        if source is not None and source.parse in INFERRED and source.schema is not None and source.schema.text:
            written[name] = parse_columns(source.schema.text)
    for one in draft.steps:
        if one.step is not None and isinstance(one.step.work, PythonFunction | Stateful | Ml):
            written[one.name] = one.step.work.schema
    return {name: {column.name.lower(): column.type for column in columns} for name, columns in written.items()}


def _source_columns(source: Source | None) -> tuple[str, ...] | None:
    own = columns_of(source.parse, source.schema) if source is not None else None
    return own if own is None or not isinstance(source, TopicSource) else (*own, *META_COLUMNS)


def _has(known: tuple[str, ...] | None, owner: str, columns: tuple[str, ...], path: Path, findings: Findings) -> None:
    if known is None:
        return
    folded = {name.lower() for name in known}
    for column in columns:
        if column.partition(".")[0].lower() not in folded:
            told = f"{owner} has no such column; it has {', '.join(known)}{did_you_mean(column, known)}"
            findings.add(path, column, told, ", ".join(known))


def _watermarks(draft: PipelineDraft, inputs: dict[str, tuple[str, ...]], findings: Findings) -> None:
    marked = {one.name for one in draft.steps if one.step is not None and one.step.watermarks}
    for one in draft.steps:
        if one.step is None or marked & upstream(inputs, [one.name]):
            continue
        if isinstance(one.step.work, Dedup):
            told = 'dedup needs a watermark, or its state grows for ever: watermark = { column = "...", delay = "..." }'
            findings.add(one.path, None, told)
        if isinstance(one.step.work, Stateful) and one.step.work.time is TimeMode.EVENT:
            findings.add((*one.path, "time"), "event", "event-time timers need a watermark, here or before this step")


def _repeatable(draft: PipelineDraft, inputs: dict[str, tuple[str, ...]], findings: Findings) -> None:
    """Report queries that give other rows when a batch is repeated: some would be written twice, others never."""
    if draft.delivery is not DeliveryGuarantee.EXACTLY_ONCE:
        return
    lasting = [sink.input for sink in draft.sinks.values() if sink is not None and kind_of(sink).durable]
    reaching = upstream(inputs, lasting)
    for one in draft.steps:
        for named in one.query.unrepeatable if one.query is not None and one.name in reaching else ():
            told = (
                f"{named.name}() gives other rows when a batch is repeated after a failure, so they would not arrive "
                'exactly once; leave it out, or set delivery = "at-least-once"'
            )
            findings.add((*one.path, "sql"), None, told, "", named.line)


def _no_loops(draft: PipelineDraft, findings: Findings) -> None:
    """Report a topic that the pipeline both reads and writes: it would process its own results without end."""
    written: list[tuple[Path, str]] = [
        (("sink", name, "topic"), sink.topic) for name, sink in draft.sinks.items() if isinstance(sink, TopicSink)
    ]
    if draft.errors.dead_letter:
        written.append((("errors", "dead_letter"), draft.errors.dead_letter))
    for path, topic in written:
        for name, source in draft.sources.items():
            if isinstance(source, TopicSource) and _reads(source, topic):
                findings.add(
                    path,
                    topic,
                    f"source {name} reads this topic, so the pipeline would read its own results without end",
                )
        if path[0] == "errors" and topic in [other for _, other in written[:-1]]:
            findings.add(path, topic, "a sink writes to this topic; dead letters need their own topic")


def _reads(source: TopicSource, topic: str) -> bool:
    return topic in source.topics or bool(source.pattern and re2.fullmatch(source.pattern, topic))


def _targets(draft: PipelineDraft, findings: Findings) -> None:
    seen: dict[tuple[object, ...], str] = {}
    for name, sink in draft.sinks.items():
        exclusive = kind_of(sink).keys_where(lambda key: key.exclusive) if sink is not None else ()
        if not exclusive:
            continue
        target = tuple(getattr(sink, key.attribute) for key in exclusive)
        if target in seen:
            told = f"sink {seen[target]} writes there too; give each its own"
            findings.add(("sink", name, exclusive[-1].name), target[-1], told)
        seen.setdefault(target, name)
    for name, source in draft.sources.items():
        if isinstance(source, TopicSource) and source.table and source.start.place != "earliest":
            told = "a table is read from its beginning, or keys would be missing; remove start"
            findings.add(("source", name, "start"), None, told, "earliest")
