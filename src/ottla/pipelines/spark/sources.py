"""Reads the sources of a pipeline: topics, topics as tables, and files.

Rule 1: columns are inferred once. The checkpoint keeps them, and every later run uses those.
Rule 2: a topic read as a table is, in every epoch, the latest record of each key. Keys whose latest record has no value
        are not in it. Each sink's query has its own epochs and so its own tables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from ottla.pipelines.spark.parse import parse
from ottla.pipelines.spark.rows import StepRows, columns_from, dead_rows
from ottla.pipelines.spec.columns import parse_columns, show_columns
from ottla.pipelines.spec.model import FilesSource, Parse, Source, TopicSource
from ottla.pipelines.spec.paths import resolved
from ottla.pipelines.spec.record_columns import META_COLUMNS, VALUE_COLUMN, sql_type
from ottla.pipelines.spec.schemas import INFERRED, SAMPLE_RECORDS

_CORRUPT: Final = "_ottla_corrupt"
_TIMES: Final = "yyyy-MM-dd['T'][' ']HH:mm:ss[.SSSSSSSSS][ZZZZZ][XX]"
"""The format of times when columns are inferred. Spark's default would take a postal code for a year."""

TopicRecords = Callable[[TopicSource], DataFrame]
"""Reads a topic source; a stream when live, a bounded frame in a replay."""
TableRecords = Callable[[str, TopicSource], DataFrame]
"""Reads a topic for a table of the named sink's query."""


@dataclass(frozen=True)
class SourceContext:
    """How sources are read in a run."""

    spark: SparkSession
    directory: str
    """The directory of the pipeline's file. Paths in the pipeline are relative to it."""
    records: TopicRecords
    every_record: TopicRecords
    """Reads all records that a topic holds now, as a batch."""
    columns: dict[str, StructType]
    """The columns by source that were inferred, now or by an earlier run."""
    keep_failures: bool
    streaming: bool = True
    between: tuple[str, str] | None = None
    """Files last changed between these two times are read; in Spark's format. None: all files."""
    tables: TableRecords | None = None
    """Reads a table in epochs. None: a table is made of every record that its topic holds."""
    sink: str = ""
    """The sink whose query reads, for its tables."""

    def path(self, path: str) -> str:
        return resolved(self.directory, path)


def read(reading: SourceContext, source: Source) -> StepRows:
    columns = _columns(reading, source)
    if isinstance(source, FilesSource):
        return _files(reading, source, columns)
    if source.table:
        records = reading.every_record(source) if reading.tables is None else reading.tables(reading.sink, source)
        # A failure stops the run: it would be a dead letter again in every epoch, or be missing unnoticed.
        return parse(_latest(records), source, columns, keep_failures=False)
    return parse(reading.records(source), source, columns, keep_failures=reading.keep_failures)


def _latest(records: DataFrame) -> DataFrame:
    """The record of each key with the highest offset. All records of a key are in one partition."""
    whole = F.struct(*records.columns)
    latest = records.groupBy("_topic", "_key").agg(F.max_by(whole, F.col("_offset")).alias("latest"))
    return latest.select("latest.*").where(F.col(VALUE_COLUMN).isNotNull())


def _files(reading: SourceContext, source: FilesSource, columns: StructType | None) -> StepRows:
    if source.parse is Parse.PARQUET:
        assert columns is not None, "every Parquet file has its schema"
        return StepRows(_load(reading, source, "parquet", columns))
    if source.parse is Parse.CSV:
        assert columns is not None, "inferred where it is not given"
        return _csv(reading, source, columns)
    lines = _load(reading, source, "text", StructType().add("value", "string"))
    raw = lines.select(*_no_meta(), F.col("value").cast("binary").alias(VALUE_COLUMN))
    rows = parse(raw, source, columns, keep_failures=reading.keep_failures)
    return StepRows(rows.frame.drop(*META_COLUMNS), rows.widest.drop(*META_COLUMNS), rows.dead)


def _no_meta() -> list[Column]:
    return [F.lit(None).cast(sql_type(name)).alias(name) for name in META_COLUMNS]


def _csv(reading: SourceContext, source: FilesSource, columns: StructType) -> StepRows:
    if not reading.keep_failures:
        return StepRows(_load(reading, source, "csv", columns, mode="FAILFAST"))
    with_corrupt = StructType([*columns.fields]).add(_CORRUPT, "string")
    lines = _load(reading, source, "csv", with_corrupt, mode="PERMISSIVE", columnNameOfCorruptRecord=_CORRUPT)
    # Spark marks corrupt lines only if their columns are used too. This condition uses all columns and is never true.
    whole = F.concat_ws("", *(F.col(f"`{name}`").cast("string") for name in columns.fieldNames()))
    lines = lines.withColumn(_CORRUPT, F.coalesce(F.col(_CORRUPT), F.when(F.length(whole) < 0, F.lit(""))))
    corrupt = F.col(_CORRUPT)
    failed = lines.where(corrupt.isNotNull()).select(*_no_meta(), corrupt.cast("binary").alias(VALUE_COLUMN))
    error = F.lit(f"is not a line of CSV with the columns {columns.simpleString().removeprefix('struct')}")
    return StepRows(lines.where(corrupt.isNull()).drop(_CORRUPT), None, dead_rows(failed, error=error))


def _load(reading: SourceContext, source: FilesSource, form: str, columns: StructType, **options: str) -> DataFrame:
    path = reading.path(source.path)
    if source.parse is Parse.CSV:
        options["header"] = "true" if source.header else "false"
        options["columnPruning"] = "false"  # A line is parsed completely, even if a query uses one column of it.
    if reading.between is not None:
        options |= {"modifiedAfter": reading.between[0], "modifiedBefore": reading.between[1]}
    if not reading.streaming:
        return reading.spark.read.format(form).schema(columns).options(**options).load(path)
    if source.bytes_per_batch_max is not None:  # Spark takes only one of the two limits.
        options["maxBytesPerTrigger"] = str(source.bytes_per_batch_max)
    else:
        options["maxFilesPerTrigger"] = str(source.files_per_batch_max)
    return reading.spark.readStream.format(form).schema(columns).options(**options).load(path)


def _columns(reading: SourceContext, source: Source) -> StructType | None:
    if source.parse not in INFERRED:
        return None
    if source.schema is not None and source.schema.text:
        return columns_from(show_columns(parse_columns(source.schema.text)))
    if source.name not in reading.columns:
        reading.columns[source.name] = _inferred(reading, source)
    return reading.columns[source.name]


class NothingToInfer(Exception):
    """There is no record yet to infer the columns from."""


def _inferred(reading: SourceContext, source: Source) -> StructType:
    spark = reading.spark
    count = (source.schema.sample_records if source.schema is not None else 0) or SAMPLE_RECORDS
    if source.parse is Parse.PARQUET:
        assert isinstance(source, FilesSource), "topics hold no Parquet"
        found = spark.read.parquet(reading.path(source.path)).schema
    else:
        if isinstance(source, TopicSource):
            values = reading.every_record(source).where(F.col(VALUE_COLUMN).isNotNull())
            lines = [row[0] for row in values.select(F.col(VALUE_COLUMN).cast("string")).limit(count).collect()]
        else:
            lines = [row[0] for row in spark.read.text(reading.path(source.path)).limit(count).collect()]
        sample: Any = spark.sparkContext.parallelize(
            lines, 1
        )  # Spark accepts it instead of a path, though its types do not say so.
        if source.parse is Parse.CSV:
            header = isinstance(source, FilesSource) and source.header
            found = spark.read.csv(sample, header=header, inferSchema=True).schema if lines else StructType()
        else:
            reader = spark.read.option("inferTimestamp", "true").option("timestampFormat", _TIMES)
            found = reader.json(sample, mode="DROPMALFORMED").schema
    if not found.fields:
        raise NothingToInfer(
            f"source {source.name}: there are no records to infer columns from; declare them with "
            f'schema = "id BIGINT, city STRING", or start the pipeline when there are records'
        )
    return found
