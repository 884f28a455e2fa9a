"""Describes the parts of a pipeline for `plan`: a row for each source, step and sink, each after its inputs."""

from collections.abc import Iterator

from ottla.cli.tables import counted, shown_size
from ottla.cli.times import shown_duration
from ottla.pipelines.spec.graph import in_order, inputs_of
from ottla.pipelines.spec.model import (
    Dedup,
    MarkOnly,
    Ml,
    Pipeline,
    PythonFunction,
    Schema,
    Source,
    Sql,
    Stateful,
    Step,
    TopicSource,
)
from ottla.pipelines.spec.sinks import kind_of
from ottla.pipelines.spec.sql import normal_query
from ottla.pipelines.spec.values import START

PlanRow = tuple[str, str, str, str]


def described(pipeline: Pipeline) -> Iterator[PlanRow]:
    sources = {source.name: source for source in pipeline.sources}
    steps = {step.name: step for step in pipeline.steps}
    for name in in_order(inputs_of(pipeline)):
        if name in sources:
            yield "source", name, "", ", ".join(_source(sources[name]))
        else:
            yield "step", name, ", ".join(steps[name].inputs), ", ".join(_step(steps[name]))
    for sink in pipeline.sinks:
        yield "sink", sink.name, sink.input, ", ".join(kind_of(sink).describe(sink))
    errors = pipeline.errors
    if errors.dead_letter:
        yield (
            "errors",
            "",
            "",
            f"topic {errors.dead_letter}, stops when more than {errors.max_rate:.4g} of the records fail",
        )
    else:
        yield "errors", "", "", "the first record that fails stops the pipeline"


def _source(source: Source) -> Iterator[str]:
    if not isinstance(source, TopicSource):
        yield f"files {source.path}"
        yield f"{source.parse}{_schema(source.schema)}"
        yield f"at most {counted(source.files_per_batch_max, 'file')} a batch"
        if source.bytes_per_batch_max is not None:
            yield f"at most {shown_size(source.bytes_per_batch_max)} a batch"
        return
    what = f"topic {source.topics[0]}" if len(source.topics) == 1 else f"topics {', '.join(source.topics)}"
    yield f"topics like {source.pattern}" if source.pattern else what
    yield f"{source.parse}{_schema(source.schema)}"
    yield "as a table" if source.table else f"from {_start(source)}"
    yield str(source.isolation)
    yield f"at most {counted(source.records_per_batch_max, 'record')} a batch"
    if source.records_per_second_max is not None:
        yield f"at most {counted(source.records_per_second_max, 'record')} a second"


def _start(source: TopicSource) -> str:
    written = START.write(source.start)
    return written if isinstance(written, str) else " ".join(f"{where}={offset}" for where, offset in written.items())


def _schema(schema: Schema | None) -> str:
    if schema is None or schema.text:
        return ""
    return f" (columns from {counted(schema.sample_records, 'record')})"


def _step(step: Step) -> Iterator[str]:
    match step.work:
        case Sql(query):
            yield normal_query(query)
        case PythonFunction(function, frame):
            yield f"python {function} on {frame} batches"
        case Dedup(columns):
            yield f"dedup by {', '.join(columns)}"
        case Stateful(processor, keys):
            yield f"stateful {processor} by {', '.join(keys)}"
        case Ml(model, train):
            yield f"model {model}" if model else f"train {train}"
        case MarkOnly():
            pass
    for mark in step.watermarks:
        yield f"watermark {mark.input}.{mark.column} {shown_duration(mark.delay_ms)}"
