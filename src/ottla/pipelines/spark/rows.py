"""The formats of rows between steps, and of records that failed.

Rule 1: rows of a topic source have the columns of the parsed value and META_COLUMNS. VALUE_COLUMN, the bytes of the
        value, stays with them as far as the first step, so that its dead letters hold the record as it was read.
Rule 2: a record that failed is a row of DEAD_SCHEMA until it is written. Topic, partition and offset are null if they
        are not known: after a query, or in files.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from ottla.pipelines.spec.record_columns import DEAD_LETTER_COLUMNS, META_COLUMNS, VALUE_COLUMN, field_of, sql_columns

DEAD_SCHEMA: Final = sql_columns(DEAD_LETTER_COLUMNS)


def columns_from(text: str) -> StructType:
    """The columns that a SQL text declares."""
    found = StructType.fromDDL(text)
    assert isinstance(found, StructType), text
    return found


@dataclass(frozen=True)
class StepRows:
    frame: DataFrame
    original: DataFrame | None = None
    """The frame with VALUE_COLUMN; None after the first step."""
    dead: DataFrame | None = None
    """Failed records, in DEAD_SCHEMA; None if a failure stops the pipeline."""

    @property
    def widest(self) -> DataFrame:
        return self.frame if self.original is None else self.original


def dead_rows(frame: DataFrame, *, error: Column) -> DataFrame:
    """Rows of DEAD_SCHEMA for records that still have META_COLUMNS and VALUE_COLUMN."""
    fields = {field_of(name): F.col(name) for name in (*META_COLUMNS, VALUE_COLUMN)} | {"error": error}
    return frame.select(*(fields[name].alias(name) for name in DEAD_LETTER_COLUMNS))
