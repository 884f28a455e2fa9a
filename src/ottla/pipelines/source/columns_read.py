"""Which columns of a topic's records a pipeline reads. Columns that nothing uses are not made.

Rule 1: in doubt a column is read. It is left out only if every reader names the columns it takes and leaves this one
        out. Such readers are queries (`takes_every_column`) and sinks that write no META_COLUMNS by themselves.
Rule 2: a name counts wherever it stands in a query, also in quotes.
Rule 3: topic, partition and offset are read unless the value is not parsed, for the message about a record that cannot
        be parsed. With a dead-letter topic all columns are read, since a dead letter is the whole record.
"""

from typing import Final

from ottla.pipelines.spec.model import Parse, Pipeline, Sink, Sql, Step, TopicSource
from ottla.pipelines.spec.record_columns import SOURCE_COLUMNS, VALUE_COLUMN
from ottla.pipelines.spec.sinks import kind_of
from ottla.pipelines.spec.sql import read_query
from ottla.pipelines.spec.values import COLUMN_NAMES

_PLACE: Final = ("_topic", "_partition", "_offset")


def columns_read(pipeline: Pipeline, source: TopicSource) -> tuple[str, ...]:
    """The columns that the pipeline needs of a source, in the order of SOURCE_COLUMNS."""
    if pipeline.errors.dead_letter:
        return SOURCE_COLUMNS
    readers: list[Step | Sink] = [step for step in pipeline.steps if source.name in step.inputs]
    readers += [sink for sink in pipeline.sinks if sink.input == source.name]
    named = [_named_by(reader) for reader in readers]
    always = (VALUE_COLUMN,) if source.parse is Parse.BYTES else (VALUE_COLUMN, *_PLACE)
    return tuple(
        name for name in SOURCE_COLUMNS if name in always or any(text is None or name in text for text in named)
    )


def _named_by(reader: Step | Sink) -> str | None:
    """A text that contains every column that the reader names; None if it takes all columns."""
    match reader:
        case Step(work=Sql(query)) if not read_query(query).takes_every_column:
            return "\n".join((query, *(mark.column for mark in reader.watermarks))).lower()
        case Sink() if not kind_of(reader).takes_meta_columns:
            keys = kind_of(reader).keys_where(lambda key: key.kind is COLUMN_NAMES)
            return "\n".join(column for key in keys for column in getattr(reader, key.attribute)).lower()
        case _:
            return None
