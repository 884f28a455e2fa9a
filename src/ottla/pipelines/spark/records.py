"""Rows to the records of a topic: key, value and headers in bytes; and dead letters as such records.

Rule 1: a key of one column is that column: text as UTF-8, bytes as they are, anything else as it would be printed. A
        key of several columns is a JSON object of them.
Rule 2: the value has every column but those that are headers and those that came along with a source's records (META).
Rule 3: a dead letter has the key, the value and the headers it was read with, and headers that say whence it comes and
        why. Its time is when it is written: with an old one retention might take it at once.
Rule 4: a frame has the columns that differ from row to row and no others: each is copied three times on its way. Key
        and value always; headers where there are any; topic and IS_DEAD where dead letters are among the records.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from ottla.pipelines import dead_letters
from ottla.pipelines.spark.rows import HEADERS_TYPE, META
from ottla.pipelines.spark.schema_formats import encoder
from ottla.pipelines.spec import Parse, TopicSink

IS_DEAD: Final = "dead"
"""Whether the row is a dead letter; not there where none can be."""
_VALUE: Final = "value"


class BadSink(Exception):
    """The columns that reach a sink do not fit what it is to write."""


def records_of(frame: DataFrame, sink: TopicSink) -> DataFrame:
    """Key, value, and headers if the sink has any, of the rows that a sink reads. Raises BadSink."""
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
    """Records for `topic`, and dead letters among them."""
    headers = F.col("headers") if "headers" in records.columns else F.array().cast(HEADERS_TYPE)
    return _outgoing(records.withColumn("headers", headers), topic, dead=False).unionByName(dead)


def dead_records(dead: DataFrame, topic: str, pipeline: str) -> DataFrame:
    """Of rows of DEAD_SCHEMA; the epoch is added when it is known."""
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


def with_epoch(records: DataFrame, epoch: int) -> DataFrame:
    """The epoch among the headers of dead letters, if there can be any."""
    if IS_DEAD not in records.columns:
        return records
    told = F.array(_header(dead_letters.EPOCH, F.lit(str(epoch)))).cast(HEADERS_TYPE)
    headers = F.when(F.col(IS_DEAD), F.concat("headers", told)).otherwise(F.col("headers"))
    return records.withColumn("headers", headers)


def _outgoing(made: DataFrame, topic: str, *, dead: bool) -> DataFrame:
    return made.select(F.lit(topic).alias("topic"), "key", _VALUE, "headers", F.lit(dead).alias(IS_DEAD))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def _headers(schema: StructType, columns: tuple[str, ...]) -> Column:
    return F.array(*(_header(name, _bytes(_type(schema, name), F.col(name))) for name in columns)).cast(HEADERS_TYPE)


def _value(frame: DataFrame, sink: TopicSink) -> Column:
    names = [name for name in frame.columns if name not in sink.headers and name not in META]
    match sink.serialise:
        case Parse.JSON:
            return F.to_json(F.struct(*names), {"ignoreNullFields": "false"}).cast("binary")
        case Parse.AVRO | Parse.PROTOBUF:
            return F.struct(*names)
        case _:
            name = _VALUE if _VALUE in names else names[0]
            if name != _VALUE and len(names) > 1:
                raise BadSink(
                    f"sink {sink.name} writes {sink.serialise}, which is one column, and reads {', '.join(names)}: "
                    "call one of them value, or serialise as json"
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
                f"sink {sink.name}: there is no column {name} for its {what}; {', '.join(frame.columns)} are there"
            )
