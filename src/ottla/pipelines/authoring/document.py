"""A spec written back as a document: the canonical form that a checkpoint keeps, and its hash.

Rule 1: reading the document gives an equal spec.
Rule 2: the document holds every default, and queries without their layout. So specs with the same meaning have the same
        hash, and a later version with other defaults still reads the same spec.
Rule 3: the order of sources, steps and sinks does not change the hash.
"""

import hashlib
import json
from typing import Any, Final

from ottla.pipelines.authoring.reader import read_pipeline
from ottla.pipelines.authoring.tables import write_table
from ottla.pipelines.spec import keys
from ottla.pipelines.spec.columns import parse_columns, show_columns
from ottla.pipelines.spec.model import Pipeline, Schema, Sink, Source, Sql, Step, TopicSource
from ottla.pipelines.spec.problems import FileLine, Path
from ottla.pipelines.spec.schemas import INFERRED
from ottla.pipelines.spec.sinks import kind_of
from ottla.pipelines.spec.sql import normal_query

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
    """The document as one line of JSON, as a checkpoint keeps it."""
    document = to_document(pipeline) | {"format": FORMAT}
    document["step"] = sorted(document.get("step", []), key=lambda step: str(step["name"]))
    return json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def spec_hash(pipeline: Pipeline) -> str:
    return hashlib.sha256(canonical(pipeline).encode()).hexdigest()


def from_canonical(text: str, file: str) -> Pipeline:
    """The spec in a checkpoint's file; errors name `file`. Raises ValueError, of which InvalidPipeline is one."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise ValueError(f"{file}: this is not a pipeline of format {FORMAT}; another version of Ottla wrote it")
    return read_pipeline(document, _WholeFile(file), _Settled())


class _WholeFile:
    def __init__(self, file: str) -> None:
        self._file = file

    def of(self, path: Path, line_in_text: int = 0) -> FileLine:  # noqa: ARG002 - the file has one line
        return FileLine(self._file, 1)


class _Settled:
    """The files of a spec in a checkpoint: it has none. The spec contains its schemas, and was checked before."""

    def read_text(self, path: str) -> str:
        raise FileNotFoundError(2, "a spec in a checkpoint contains its schemas, so it names no file", path)

    def reference_fault(self, reference: str) -> str:  # noqa: ARG002 - missing code is found when it is run
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
    schema, has_columns = getattr(sink, "schema", None), getattr(sink, "serialise", None) in INFERRED
    return _normal_schema(schema, has_columns, write_table(sink, kind_of(sink).form))
