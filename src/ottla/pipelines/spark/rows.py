"""What flows between the parts of a pipeline: rows, and beside them the records that could not become rows.

Rule 1: rows of a topic source have the columns of the value and META. The value's own bytes go along under ORIGINAL
        only as far as the first step: its failures can then be told with the record as it was read.
Rule 2: a record that failed is a row of DEAD_SCHEMA until it is written. Topic, partition and offset are null where
        they are not known: after a query, or in files.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

META: Final = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
ORIGINAL: Final = "_value"
HEADERS_TYPE: Final = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
DEAD_SCHEMA: Final = (
    f"key BINARY, value BINARY, headers {HEADERS_TYPE}, topic STRING, partition INT, offset BIGINT, error STRING"
)


def columns_from(text: str) -> StructType:
    """Columns in SQL's words."""
    found = StructType.fromDDL(text)
    assert isinstance(found, StructType), text
    return found


@dataclass(frozen=True)
class Rows:
    frame: DataFrame
    original: DataFrame | None = None
    """The frame with ORIGINAL beside META, where there is such a thing."""
    dead: DataFrame | None = None
    """DEAD_SCHEMA; None where a record that fails stops the pipeline."""

    @property
    def widest(self) -> DataFrame:
        return self.frame if self.original is None else self.original


def dead_rows(frame: DataFrame, *, error: Column) -> DataFrame:
    """Dead letters of records that still have META and ORIGINAL."""
    return frame.select(
        F.col("_key").alias("key"),
        F.col(ORIGINAL).alias("value"),
        F.col("_headers").alias("headers"),
        F.col("_topic").alias("topic"),
        F.col("_partition").alias("partition"),
        F.col("_offset").alias("offset"),
        error.alias("error"),
    )
