"""Which columns of a topic's records a pipeline reads: what nobody looks at is not made.

Rule 1: in doubt a column is read. Only who names the columns they take leaves any out: a query (`takes_every_column`),
        and a topic sink, whose records have none of a source's but those that are its key or its headers.
Rule 2: a name counts wherever it stands in a query, also in quotes.
Rule 3: a record that cannot be parsed is told with its place. Where there are dead letters it is kept whole.
"""

from typing import Final

from ottla.pipelines.reading import COLUMNS
from ottla.pipelines.spec import Parse, Pipeline, Sink, Sql, Step, TopicSink, TopicSource
from ottla.pipelines.sql import read_query

_VALUE: Final = "_value"
_PLACE: Final = ("_topic", "_partition", "_offset")


def columns_read(pipeline: Pipeline, source: TopicSource) -> tuple[str, ...]:
    """In the order of COLUMNS."""
    if pipeline.errors.dead_letter:
        return COLUMNS
    readers: list[Step | Sink] = [step for step in pipeline.steps if source.name in step.inputs]
    readers += [sink for sink in pipeline.sinks if sink.input == source.name]
    named = [_named_by(reader) for reader in readers]
    always = (_VALUE,) if source.parse is Parse.BYTES else (_VALUE, *_PLACE)
    return tuple(name for name in COLUMNS if name in always or any(text is None or name in text for text in named))


def _named_by(reader: Step | Sink) -> str | None:
    """A text that has every column they name; None for who takes all."""
    match reader:
        case Step(work=Sql(query)) if not read_query(query).takes_every_column:
            return "\n".join((query, *(mark.column for mark in reader.watermarks))).lower()
        case TopicSink():
            return "\n".join((*reader.key, *reader.headers)).lower()
        case _:
            return None
