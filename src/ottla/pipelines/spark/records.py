"""Makes records for a topic of rows and of dead letters: key, value and headers in bytes.

Rule 1: a key of one column holds text as UTF-8, bytes unchanged, and other types as Spark casts them to text. A key of
        several columns is a JSON object.
Rule 2: the value has every column but those that are headers and META_COLUMNS, which came along with a source's record.
Rule 3: a dead letter has the key, value and headers of the record that failed, and headers that say where it came from
        and why it failed. Its timestamp is the time of writing: retention might remove one with an old timestamp.
Rule 4: a frame has only the columns that differ between rows, since each is copied three times: key and value always,
        headers if there are any, topic and IS_DEAD if dead letters are among the records.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from ottla.pipelines.sink import dead_letters
from ottla.pipelines.spark.schema_formats import encoder
from ottla.pipelines.spec.model import Parse, TopicSink
from ottla.pipelines.spec.record_columns import HEADERS_TYPE, IS_DEAD, META_COLUMNS

_VALUE: Final = "value"


class BadSink(Exception):
    """The columns that reach a sink do not fit what it has to write."""


def records_of(frame: DataFrame, sink: TopicSink) -> DataFrame:
    """The records of a sink's rows: key, value, and headers if the sink has any. Raises BadSink."""
    _check(frame, sink, sink.key, "key")
    _check(frame, sink, sink.headers, "header")
    columns = {"key": _text_or_bytes(frame.schema, sink.key), _VALUE: _value(frame, sink)}
    if sink.headers:
        columns["headers"] = _headers(frame.schema, sink.headers)
    made = frame.select(*(column.alias(name) for name, column in columns.items()))
    if sink.serialise not in (Parse.AVRO, Parse.PROTOBUF):
        return made
    assert sink.schema is not None, "the plan refuses it"
    encode = encoder(sink.serialise, sink.schema.text, sink.message, column=_VALUE)
    types = {"key": "BINARY", _VALUE: "BINARY", "headers": HEADERS_TYPE}
    return made.mapInArrow(encode, ", ".join(f"{name} {types[name]}" for name in columns))


def with_dead(records: DataFrame, topic: str, dead: DataFrame) -> DataFrame:
    """The records for `topic` together with dead letters."""
    headers = F.col("headers") if "headers" in records.columns else F.array().cast(HEADERS_TYPE)
    return _outgoing(records.withColumn("headers", headers), topic, dead=False).unionByName(dead)


def dead_records(dead: DataFrame, topic: str, pipeline: str) -> DataFrame:
    """Records of the rows of DEAD_SCHEMA. The header with the epoch is added when an epoch is written."""
    told = [
        (dead_letters.TOPIC, F.col("topic")),
        (dead_letters.PARTITION, F.col("partition").cast("string")),
        (dead_letters.OFFSET, F.col("offset").cast("string")),
        (dead_letters.ERROR, F.col("error")),
        (dead_letters.PIPELINE, F.lit(pipeline)),
    ]
    added = F.filter(F.array(*(_header(name, value) for name, value in told)), lambda one: one["value"].isNotNull())
    none = F.array().cast(HEADERS_TYPE)
    headers = F.concat(F.coalesce("headers", none), added.cast(HEADERS_TYPE))
    return _outgoing(dead.select("key", _VALUE, headers.alias("headers")), topic, dead=True)


def _outgoing(made: DataFrame, topic: str, *, dead: bool) -> DataFrame:
    return made.select(F.lit(topic).alias("topic"), "key", _VALUE, "headers", F.lit(dead).alias(IS_DEAD))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def _headers(schema: StructType, columns: tuple[str, ...]) -> Column:
    return F.array(*(_header(name, _bytes(_type(schema, name), F.col(name))) for name in columns)).cast(HEADERS_TYPE)


def _value(frame: DataFrame, sink: TopicSink) -> Column:
    names = [name for name in frame.columns if name not in sink.headers and name not in META_COLUMNS]
    match sink.serialise:
        case Parse.JSON:
            return F.to_json(F.struct(*names), {"ignoreNullFields": "false"}).cast("binary")
        case Parse.AVRO | Parse.PROTOBUF:
            return F.struct(*names)
        case _:
            name = _VALUE if _VALUE in names else names[0]
            if name != _VALUE and len(names) > 1:
                raise BadSink(
                    f"sink {sink.name} writes {sink.serialise}, which takes one column, and reads {', '.join(names)}: "
                    "name one of them value, or serialise as json"
                )
            return _bytes(_type(frame.schema, name), F.col(name))


def _text_or_bytes(schema: StructType, columns: tuple[str, ...]) -> Column:
    if not columns:
        return F.lit(None).cast("binary")
    if len(columns) == 1:
        return _bytes(_type(schema, columns[0]), F.col(columns[0]))
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).cast("binary")


def _bytes(kind: DataType, column: Column) -> Column:
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, StringType):
        return column.cast("binary")
    if isinstance(kind, StructType):
        return F.to_json(column).cast("binary")
    return column.cast("string").cast("binary")


def _type(schema: StructType, name: str) -> DataType:
    return next(field.dataType for field in schema.fields if field.name.lower() == name.lower())


def _check(frame: DataFrame, sink: TopicSink, columns: tuple[str, ...], what: str) -> None:
    there = {name.lower() for name in frame.columns}
    for name in columns:
        if name.lower() not in there:
            raise BadSink(
                f"sink {sink.name}: there is no column {name} for its {what}, only {', '.join(frame.columns)}"
            )
