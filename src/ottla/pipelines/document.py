"""A spec as a document again: the canonical form that a checkpoint keeps, and its hash.

Rule 1: reading the document gives the spec back.
Rule 2: it holds every default, and queries without their layout: what means the same has the same hash, and a later
        version with other defaults reads what was meant.
Rule 3: the order of sources, steps and sinks does not count where names say everything.
"""

import hashlib
import json
from typing import Any, Final

from ottla.pipelines import keys
from ottla.pipelines.columns import parse_columns, show_columns
from ottla.pipelines.keys import Form
from ottla.pipelines.problems import Path, Place
from ottla.pipelines.reader import read_pipeline
from ottla.pipelines.schemas import INFERRED
from ottla.pipelines.spec import ConsoleSink, Pipeline, Schema, Sink, Source, Sql, Step, TopicSource
from ottla.pipelines.sql import normal_query
from ottla.pipelines.tables import write_table

FORMAT: Final = 1


def to_document(pipeline: Pipeline) -> dict[str, Any]:
    document = write_table(pipeline, keys.PIPELINE)
    document["source"] = {source.name: _source(source) for source in pipeline.sources}
    if pipeline.steps:
        document["step"] = [_step(step) for step in pipeline.steps]
    document["sink"] = {sink.name: _sink(sink) for sink in pipeline.sinks}
    if pipeline.errors.dead_letter:
        document["errors"] = write_table(pipeline.errors, keys.ERRORS)
    return document


def canonical(pipeline: Pipeline) -> str:
    """What a checkpoint keeps: one line of JSON."""
    document = to_document(pipeline) | {"format": FORMAT}
    document["step"] = sorted(document.get("step", []), key=lambda step: str(step["name"]))
    return json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def spec_hash(pipeline: Pipeline) -> str:
    return hashlib.sha256(canonical(pipeline).encode()).hexdigest()


def from_canonical(text: str, file: str) -> Pipeline:
    """The spec that a checkpoint keeps in `file`. Raises ValueError; InvalidPipeline is one."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise ValueError(f"{file}: this is no pipeline of format {FORMAT}; another version of Ottla wrote it")
    return read_pipeline(document, _WholeFile(file), _Settled())


class _WholeFile:
    def __init__(self, file: str) -> None:
        self._file = file

    def of(self, path: Path, line_in_text: int = 0) -> Place:  # noqa: ARG002 - one line is all there is
        return Place(self._file, 1)


class _Settled:
    """The world of a spec that was checked when it was first read."""

    def read_text(self, path: str) -> str:
        raise FileNotFoundError(2, "a spec has its schemas with it", path)

    def reference_fault(self, reference: str) -> str:  # noqa: ARG002 - the code is looked for when it is run
        return ""


def _source(source: Source) -> dict[str, Any]:
    form = keys.TOPIC_SOURCE if isinstance(source, TopicSource) else keys.FILES_SOURCE
    return _normal_schema(source.schema, source.parse in INFERRED, write_table(source, form, _csv_only(source)))


def _csv_only(source: Source) -> Any:
    return lambda name: name == "header" and source.parse != "csv"


def _normal_schema(schema: Schema | None, has_columns: bool, written: dict[str, Any]) -> dict[str, Any]:
    if schema is not None and schema.text and has_columns:
        written["schema"] = show_columns(parse_columns(schema.text))
    return written


def _step(step: Step) -> dict[str, Any]:
    form = next(form for form in keys.STEPS if isinstance(step.work, form.type))
    written = write_table(step.work, form, lambda name: name in ("name", "input", "watermark"))
    written["name"] = step.name
    if isinstance(step.work, Sql):
        written["sql"] = normal_query(step.work.query)
    else:
        written["input"] = step.inputs[0]
    if step.watermarks:
        written["watermark"] = [write_table(mark, keys.WATERMARK) for mark in step.watermarks]
    return written


def _sink(sink: Sink) -> dict[str, Any]:
    form: Form = next(form for form in keys.SINKS if isinstance(sink, form.type))
    if isinstance(sink, ConsoleSink):
        return write_table(sink, form, lambda name: name == "console") | {"console": True}
    written = write_table(sink, form)
    schema = getattr(sink, "schema", None)
    return _normal_schema(schema, getattr(sink, "serialise", None) in INFERRED, written)
