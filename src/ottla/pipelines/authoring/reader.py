"""Makes a spec of a document from TOML or Python. Both are validated here.

Rule 1: reading goes on after a mistake, so that all are reported. A mistake that only follows from another is not.
Rule 2: schema files and the existence of code are the only things asked of the file system, through `AuthoringFiles`.
"""

from collections.abc import Mapping
from dataclasses import replace
from textwrap import dedent
from typing import Any, Protocol

from ottla.pipelines.authoring.checks import check
from ottla.pipelines.authoring.draft import PipelineDraft, StepDraft
from ottla.pipelines.authoring.tables import as_table, choose, read_table
from ottla.pipelines.spec import keys
from ottla.pipelines.spec.keys import TableForm
from ottla.pipelines.spec.model import (
    Errors,
    FilesSource,
    MarkOnly,
    Parse,
    Pipeline,
    Schema,
    Sink,
    Source,
    StartPosition,
    Step,
    TopicSource,
    Watermark,
)
from ottla.pipelines.spec.problems import Findings, InvalidPipeline, LineFinder, Path, Unfit, did_you_mean
from ottla.pipelines.spec.schemas import INFERRED, SAMPLE_RECORDS, WITHOUT, SchemaFile, check_schema
from ottla.pipelines.spec.sinks import sink_forms
from ottla.pipelines.spec.sql import read_query
from ottla.pipelines.spec.values import COLUMNS, ValueKind

_PARTS = ("source", "step", "sink", "errors")
_TOP = replace(
    keys.PIPELINE,
    keys=(*keys.PIPELINE.keys, *(keys.TableKey(part, ValueKind("", lambda value: value, str), "") for part in _PARTS)),
)


class AuthoringFiles(Protocol):
    """The files that reading a pipeline needs."""

    def read_text(self, path: str) -> str:
        """The text of a file that the pipeline names. Raises OSError or UnicodeError."""

    def reference_fault(self, reference: str) -> str:
        """The reason why MODULE:NAME cannot be used; empty if it can."""


def read_pipeline(document: Mapping[str, object], places: LineFinder, outside: AuthoringFiles) -> Pipeline:
    """Read and check the document of a pipeline. Raises InvalidPipeline with every mistake."""
    reader = _Reader(Findings(places), outside)
    pipeline = reader.pipeline(document)
    if pipeline is None or reader.findings.problems:
        raise InvalidPipeline(reader.findings.problems)
    return pipeline


class _Reader:
    def __init__(self, findings: Findings, outside: AuthoringFiles) -> None:
        self.findings = findings
        self._outside = outside

    def pipeline(self, document: Mapping[str, object]) -> Pipeline | None:
        values, whole = read_table(document, _TOP, (), self.findings)
        draft = PipelineDraft(values["delivery"], self._errors(document.get("errors", {})))
        for name, raw in self._tables(document, "source"):
            draft.sources[name] = self._source(name, raw)
        self._steps(document.get("step", []), draft)
        for name, raw in self._tables(document, "sink"):
            draft.sinks[name] = self._sink(name, raw, draft)
        check(draft, self.findings)
        if not whole or self.findings.problems:
            return None
        return Pipeline(
            name=values["name"],
            sources=tuple(source for source in draft.sources.values() if source is not None),
            steps=tuple(one.step for one in draft.steps if one.step is not None),
            sinks=tuple(sink for sink in draft.sinks.values() if sink is not None),
            errors=draft.errors,
            delivery=draft.delivery,
            checkpoint=values["checkpoint"] or f"checkpoints/{values['name']}",
            bootstrap=values["bootstrap"],
        )

    def _tables(self, document: Mapping[str, object], part: str) -> list[tuple[str, object]]:
        """The named tables of a part. Names that are not allowed are reported."""
        tables = as_table(document.get(part, {}), (part,), self.findings)
        if tables is None:
            return []
        if not tables:
            self.findings.add((part,), None, f"there is no {part}; add [{part}.NAME]", f"[{part}.NAME]")
        for name in tables:
            try:
                keys.NODE_NAME.read(name)
            except Unfit as unfit:
                self.findings.add((part, name), None, f"{name!r} is not a name: {unfit.told}", unfit.allowed)
        return list(tables.items())

    def _errors(self, raw: object) -> Errors:
        table = as_table(raw, ("errors",), self.findings)
        if table is None:
            return Errors()
        values, _ = read_table(table, keys.ERRORS, ("errors",), self.findings)
        if "max_rate" in table and "dead_letter" not in table:
            told = "has no effect without dead_letter: the first record that fails stops the pipeline"
            self.findings.add(("errors", "max_rate"), table["max_rate"], told)
        return Errors(**values)

    def _source(self, name: str, raw: object) -> Source | None:
        path: Path = ("source", name)
        read = self._form(raw, keys.SOURCES, path)
        if read is None:
            return None
        form, table, values = read
        values["schema"] = self._schema(values["parse"], values["schema"], values.get("message", ""), path, table)
        if form is keys.FILES_SOURCE:
            if "header" in table and values["parse"] is not Parse.CSV:
                self.findings.add((*path, "header"), table["header"], 'is only for parse = "csv"')
            return FilesSource(name=name, **values)
        if values["topics"] and values["pattern"]:
            self.findings.add((*path, "pattern"), table["pattern"], "topic and pattern exclude each other; keep one")
        values["start"] = self._start(values["start"], values["topics"], (*path, "start"))
        if not values["topics"] and not values["pattern"]:
            return None  # The topic or pattern had a mistake, which has been reported.
        return TopicSource(name=name, **values)

    def _start(self, start: StartPosition, topics: tuple[str, ...], path: Path) -> StartPosition:
        """Fill in the topic of offsets that name only a partition, if the source has a single topic."""
        full = []
        for topic, partition, offset in start.offsets:
            if not topic and len(topics) != 1:
                told = f"which topic's partition {partition}? Write TOPIC:{partition}"
                self.findings.add((*path, str(partition)), offset, told)
            elif topic and topics and topic not in topics:
                told = f"{topic} is not a topic of this source{did_you_mean(topic, topics)}"
                self.findings.add((*path, f"{topic}:{partition}"), offset, told, ", ".join(topics))
            full.append((topic or "".join(topics[:1]), partition, offset))
        return replace(start, offsets=tuple(sorted(full)))

    def _schema(
        self, parse: Parse | None, given: Any, message: str, path: Path, table: Mapping[str, object], sink: bool = False
    ) -> Schema | None:
        """The schema, checked against the format; None if there is none or it has a mistake."""
        if parse is None:
            return None
        if message and parse is not Parse.PROTOBUF:
            self.findings.add((*path, "message"), message, "is only for protobuf")
        if parse is Parse.PROTOBUF and "message" not in table:
            self.findings.add(path, None, "protobuf needs message: the full name of a message, as in shop.Order")
        if "schema" not in table:
            if parse in WITHOUT or (sink and parse is not Parse.PROTOBUF):
                return None
            if parse in INFERRED:
                return Schema("", SAMPLE_RECORDS)
            self.findings.add(path, None, f'{parse} needs schema: a text, or {{ file = "..." }}')
            return None
        path = (*path, "schema")
        file = given.path if isinstance(given, SchemaFile) else ""
        schema = self._schema_text(file, path) if file else given
        if schema is None:
            return None
        try:
            check_schema(parse, schema, message)
        except Unfit as unfit:
            if file:
                told = f"{file}, line {unfit.line_in_text + 1}: {unfit.told}"
                unfit = Unfit(unfit.allowed, told)
            self.findings.add_unfit(path, table["schema"], unfit)
            return None
        if sink and schema.sample_records:
            self.findings.add(
                path, table["schema"], "a sink does not infer a schema; remove it to write the input's columns"
            )
        return schema

    def _schema_text(self, file: str, path: Path) -> Schema | None:
        try:
            text = self._outside.read_text(file)
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self.findings.add((*path, "file"), file, f"cannot be read: {why}", "a text file")
            return None
        if not text.strip():
            self.findings.add((*path, "file"), file, "is empty", "a text file")
            return None
        return Schema(text)

    def _steps(self, raw: object, draft: PipelineDraft) -> None:
        if not isinstance(raw, list | tuple):
            self.findings.add(("step",), None, "steps are a list; write [[step]], with two brackets", "[[step]]")
            return
        for place, one in enumerate(raw):
            name = one.get("name") if isinstance(one, Mapping) else None
            draft.steps.append(StepDraft(place, name if isinstance(name, str) else f"step_{place + 1}"))
        for one, drafted in zip(raw, draft.steps, strict=True):  # A query may name a later step.
            drafted.step = self._step(one, drafted, draft)

    def _step(self, raw: object, drafted: StepDraft, draft: PipelineDraft) -> Step | None:
        path = drafted.path
        read = self._form(raw, keys.STEPS, path)
        if read is None:
            return None
        form, table, values = read
        values.pop("name")
        given_marks = values.pop("watermark")
        if form is keys.SQL:
            try:
                drafted.query = read_query(values["query"])
            except Unfit as unfit:
                self.findings.add_unfit((*path, "sql"), values["query"], unfit)
                return None
            inputs = tuple(draft.spelt(named.name) for named in drafted.query.tables)
            values["query"] = dedent(values["query"]).strip()
        else:
            given = values.pop("input")
            one = draft.spelt(given) if given else self._input_before(draft, drafted.place, path)
            if one is None:
                return None
            inputs = (one,)
        self._code_exists(form, values, path)
        if form is keys.ML:
            self._training(values, path, table)
        work = MarkOnly() if form is keys.MARK_ONLY else form.type(**values)
        return Step(drafted.name, inputs, work, self._watermarks(given_marks, inputs, (*path, "watermark"), draft))

    def _training(self, values: dict[str, Any], path: Path, table: Mapping[str, object]) -> None:
        if values["model"] and values["train"]:
            self.findings.add((*path, "train"), table["train"], "model and train exclude each other; keep one")
        elif values["train"] and "schema" not in table:
            self.findings.add(path, None, f"a step with train needs schema: {COLUMNS.expects}")
        elif values["model"] and "schema" in table:
            self.findings.add((*path, "schema"), table["schema"], "is only for train; a model adds its own columns")

    def _input_before(self, draft: PipelineDraft, place: int, path: Path) -> str | None:
        """The step before; for the first step the source, if there is only one."""
        if place:
            return draft.steps[place - 1].name
        if len(draft.sources) == 1:
            return next(iter(draft.sources))
        if draft.sources:
            told = f"which source does it read? Write input = one of {', '.join(draft.sources)}"
            self.findings.add(path, None, told, ", ".join(draft.sources))
        return None

    def _watermarks(
        self, given: object, inputs: tuple[str, ...], path: Path, draft: PipelineDraft
    ) -> tuple[Watermark, ...]:
        if given is None:
            return ()
        marks: list[Watermark] = []
        listed = isinstance(given, list | tuple)
        for place, one in enumerate(given if isinstance(given, list | tuple) else [given]):
            here: Path = (*path, place) if listed else path
            table = as_table(one, here, self.findings)
            if table is None:
                continue
            values, whole = read_table(table, keys.WATERMARK, here, self.findings)
            named = draft.spelt(values["input"]) if values["input"] else inputs[0] if len(inputs) == 1 else ""
            if not named and inputs:
                told = f"whose column is it? Write input = one of {', '.join(inputs)}"
                self.findings.add(here, None, told, ", ".join(inputs))
            elif named and named not in inputs:
                told = f"is not read by this step, which reads {', '.join(inputs)}{did_you_mean(named, inputs)}"
                self.findings.add((*here, "input"), values["input"], told, ", ".join(inputs))
            elif any(mark.input == named for mark in marks):
                self.findings.add(here, None, f"{named} has two watermarks; keep one")
            elif whole and named:
                marks.append(Watermark(named, values["column"], values["delay_ms"]))
        return tuple(marks)

    def _sink(self, name: str, raw: object, draft: PipelineDraft) -> Sink | None:
        path: Path = ("sink", name)
        read = self._form(raw, sink_forms(), path)
        if read is None:
            return None
        form, table, values = read
        given = values.pop("input")
        values["input"] = draft.spelt(given) if given else self._input_before(draft, len(draft.steps), path)
        if values["input"] is None:
            return None
        values["name"] = name
        self._code_exists(form, values, path)
        if "serialise" in values:
            parse, message = values["serialise"], values["message"]
            values["schema"] = self._schema(parse, values["schema"], message, path, table, sink=True)
        sink: Sink = form.type(**values)
        return sink

    def _code_exists(self, form: TableForm, values: Mapping[str, Any], path: Path) -> None:
        for key in form.keys:
            value = values.get(key.attribute)
            if key.kind.names_code and value and ":" in value:
                self._reference(value, (*path, key.name))

    def _reference(self, reference: str, path: Path) -> None:
        if fault := self._outside.reference_fault(reference):
            self.findings.add(path, reference, fault)

    def _form(
        self, raw: object, forms: tuple[TableForm, ...], path: Path
    ) -> tuple[TableForm, Mapping[str, object], dict[str, Any]] | None:
        """The form, the table and its values; None if required values are missing or wrong."""
        table = as_table(raw, path, self.findings)
        form = choose(table, forms, path, self.findings) if table is not None else None
        if table is None or form is None:
            return None
        values, whole = read_table(table, form, path, self.findings, forms)
        return (form, table, values) if whole else None
