"""Where rows come from: topics, tables made of topics, and files.

Rule 1: columns that are inferred are inferred once: the checkpoint keeps them, and every later run takes those.
Rule 2: a topic read as a table has, in every epoch anew, the latest record of each key; keys whose latest record has no
        value are not in it. Each sink's query has its own epochs, hence its own tables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from ottla.pipelines.columns import parse_columns, show_columns
from ottla.pipelines.paths import resolved
from ottla.pipelines.schemas import INFERRED, SAMPLE_RECORDS
from ottla.pipelines.spark.parse import parse
from ottla.pipelines.spark.rows import HEADERS_TYPE, META, ORIGINAL, Rows, columns_from, dead_rows
from ottla.pipelines.spec import FilesSource, Parse, Source, TopicSource

_CORRUPT: Final = "_ottla_corrupt"
_TIMES: Final = "yyyy-MM-dd['T'][' ']HH:mm:ss[.SSSSSSSSS][ZZZZZ][XX]"
"""What is taken for a time where columns are inferred. Spark's own choice would take a postal code for a year."""

TopicRecords = Callable[[TopicSource], DataFrame]
"""Reads a topic source; a stream when live, a bounded frame in a replay."""
TableRecords = Callable[[str, TopicSource], DataFrame]
"""Reads a topic for a table of the named sink's query."""


@dataclass(frozen=True)
class Reading:
    """How sources are read in this run."""

    spark: SparkSession
    directory: str
    """Of the pipeline's file: paths count from there."""
    records: TopicRecords
    every_record: TopicRecords
    """All that a topic holds now, as a batch."""
    columns: dict[str, StructType]
    """Of sources whose columns were inferred, now or by an earlier run."""
    keep_failures: bool
    streaming: bool = True
    between: tuple[str, str] | None = None
    """When files count: those last changed after the one time and before the other, in Spark's words."""
    tables: TableRecords | None = None
    """Where the run has epochs; else a table is every record there is."""
    sink: str = ""
    """Whose query reads; every query has tables of its own."""

    def path(self, path: str) -> str:
        return resolved(self.directory, path)


def read(reading: Reading, source: Source) -> Rows:
    columns = _columns(reading, source)
    if isinstance(source, FilesSource):
        return _files(reading, source, columns)
    if source.table:
        records = reading.every_record(source) if reading.tables is None else reading.tables(reading.sink, source)
        # What fails stops the run: it would be a dead letter again in every epoch, or be missing without a word.
        return parse(_latest(records), source, columns, keep_failures=False)
    return parse(reading.records(source), source, columns, keep_failures=reading.keep_failures)


def _latest(records: DataFrame) -> DataFrame:
    """By offset: all records of a key are in one partition."""
    whole = F.struct(*records.columns)
    latest = records.groupBy("_topic", "_key").agg(F.max_by(whole, F.col("_offset")).alias("latest"))
    return latest.select("latest.*").where(F.col(ORIGINAL).isNotNull())


def _files(reading: Reading, source: FilesSource, columns: StructType | None) -> Rows:
    if source.parse is Parse.PARQUET:
        assert columns is not None, "every Parquet file has its schema"
        return Rows(_load(reading, source, "parquet", columns))
    if source.parse is Parse.CSV:
        assert columns is not None, "inferred where it is not given"
        return _csv(reading, source, columns)
    lines = _load(reading, source, "text", StructType().add("value", "string"))
    raw = lines.select(*_no_meta(), F.col("value").cast("binary").alias(ORIGINAL))
    rows = parse(raw, source, columns, keep_failures=reading.keep_failures)
    return Rows(rows.frame.drop(*META), rows.widest.drop(*META), rows.dead)


def _no_meta() -> list[Column]:
    types = ("BINARY", "STRING", "INT", "BIGINT", "TIMESTAMP", HEADERS_TYPE)
    return [F.lit(None).cast(kind).alias(name) for name, kind in zip(META, types, strict=True)]


def _csv(reading: Reading, source: FilesSource, columns: StructType) -> Rows:
    if not reading.keep_failures:
        return Rows(_load(reading, source, "csv", columns, mode="FAILFAST"))
    with_corrupt = StructType([*columns.fields]).add(_CORRUPT, "string")
    lines = _load(reading, source, "csv", with_corrupt, mode="PERMISSIVE", columnNameOfCorruptRecord=_CORRUPT)
    # Spark does not tell which lines are corrupt to who asks for nothing else of them, not even in the end: this asks
    # for all columns, and is never true.
    whole = F.concat_ws("", *(F.col(f"`{name}`").cast("string") for name in columns.fieldNames()))
    lines = lines.withColumn(_CORRUPT, F.coalesce(F.col(_CORRUPT), F.when(F.length(whole) < 0, F.lit(""))))
    corrupt = F.col(_CORRUPT)
    failed = lines.where(corrupt.isNotNull()).select(*_no_meta(), corrupt.cast("binary").alias(ORIGINAL))
    error = F.lit(f"is no line of CSV with the columns {columns.simpleString().removeprefix('struct')}")
    return Rows(lines.where(corrupt.isNull()).drop(_CORRUPT), None, dead_rows(failed, error=error))


def _load(reading: Reading, source: FilesSource, form: str, columns: StructType, **options: str) -> DataFrame:
    path = reading.path(source.path)
    if source.parse is Parse.CSV:
        options["header"] = "true" if source.header else "false"
        options["columnPruning"] = "false"  # A line is parsed whole, also where a query wants one column of it.
    if reading.between is not None:
        options |= {"modifiedAfter": reading.between[0], "modifiedBefore": reading.between[1]}
    if not reading.streaming:
        return reading.spark.read.format(form).schema(columns).options(**options).load(path)
    if source.bytes_per_batch_max is not None:  # Spark takes one of the two limits.
        options["maxBytesPerTrigger"] = str(source.bytes_per_batch_max)
    else:
        options["maxFilesPerTrigger"] = str(source.files_per_batch_max)
    return reading.spark.readStream.format(form).schema(columns).options(**options).load(path)


def _columns(reading: Reading, source: Source) -> StructType | None:
    if source.parse not in INFERRED:
        return None
    if source.schema is not None and source.schema.text:
        return columns_from(show_columns(parse_columns(source.schema.text)))
    if source.name not in reading.columns:
        reading.columns[source.name] = _inferred(reading, source)
    return reading.columns[source.name]


class NothingToInfer(Exception):
    """There is no record yet that would show the columns."""


def _inferred(reading: Reading, source: Source) -> StructType:
    spark = reading.spark
    count = (source.schema.sample_records if source.schema is not None else 0) or SAMPLE_RECORDS
    if source.parse is Parse.PARQUET:
        assert isinstance(source, FilesSource), "topics hold no Parquet"
        found = spark.read.parquet(reading.path(source.path)).schema
    else:
        if isinstance(source, TopicSource):
            values = reading.every_record(source).where(F.col(ORIGINAL).isNotNull())
            lines = [row[0] for row in values.select(F.col(ORIGINAL).cast("string")).limit(count).collect()]
        else:
            lines = [row[0] for row in spark.read.text(reading.path(source.path)).limit(count).collect()]
        sample: Any = spark.sparkContext.parallelize(lines, 1)  # Taken in a path's place, whatever the types say.
        if source.parse is Parse.CSV:
            header = isinstance(source, FilesSource) and source.header
            found = spark.read.csv(sample, header=header, inferSchema=True).schema if lines else StructType()
        else:
            reader = spark.read.option("inferTimestamp", "true").option("timestampFormat", _TIMES)
            found = reader.json(sample, mode="DROPMALFORMED").schema
    if not found.fields:
        raise NothingToInfer(
            f"source {source.name}: nothing there shows its columns yet; write them down with "
            f'schema = "id BIGINT, city STRING", or start the pipeline when there are records'
        )
    return found
