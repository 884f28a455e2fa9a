"""The fields of a Kafka record as columns: their names, their SQL types and their Arrow types, for all of pipelines.

Rows of a topic source have these columns with an underscore before the name (`_key`), so that they do not collide with
the columns of the value. Rows for a topic sink have them without. The kernel has its own lists of columns
(`read_columns`, `TopicBatches`), since it imports nothing of pipelines.
"""

from collections.abc import Iterable
from typing import Any, Final

HEADERS_TYPE: Final = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
SQL_TYPES: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": HEADERS_TYPE,
    "error": "STRING",
}
"""`error` belongs to dead letters only."""

VALUE_COLUMN: Final = "_value"
"""The record's value as it was read, in bytes."""
SOURCE_COLUMNS: Final = ("_key", VALUE_COLUMN, "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""What a topic source can read of a record, in this order."""
META_COLUMNS: Final = tuple(name for name in SOURCE_COLUMNS if name != VALUE_COLUMN)
"""What the rows of a topic source have beside the columns of the parsed value."""
SINK_COLUMNS: Final = ("topic", "partition", "key", "value", "headers", "timestamp")
"""What a row for a topic sink consists of."""
DEAD_LETTER_COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "offset", "error")
"""A record that failed, until it is written to the dead-letter topic."""

IS_DEAD: Final = "dead"
"""The column that says whether a row for a topic sink is a dead letter; absent if none can be."""


def field_of(column: str) -> str:
    """The record's field that a source column holds: `key` for `_key`."""
    return column.removeprefix("_")


def sql_type(column: str) -> str:
    return SQL_TYPES[field_of(column)]


def sql_columns(columns: Iterable[str]) -> str:
    """The columns with their types, as Spark's SQL declares them."""
    return ", ".join(f"{column} {sql_type(column)}" for column in columns)


def arrow_type(column: str) -> Any:
    import pyarrow

    types = {
        "BINARY": pyarrow.binary(),
        "STRING": pyarrow.string(),
        "INT": pyarrow.int32(),
        "BIGINT": pyarrow.int64(),
        "TIMESTAMP": pyarrow.timestamp("us", "UTC"),
        HEADERS_TYPE: pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])),
    }
    return types[sql_type(column)]


def arrow_fields(columns: Iterable[str]) -> list[tuple[str, Any]]:
    """The columns with their Arrow types, as arguments for `pyarrow.schema` and `pyarrow.struct`."""
    return [(column, arrow_type(column)) for column in columns]
