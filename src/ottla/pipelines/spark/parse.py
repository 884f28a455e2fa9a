"""Records to rows: the values of a topic, or the lines of files, by the format that the source names.

Rule 1: a value is parsed whole or not at all. A field of another type than its column's fails the record, as bytes that
        are no UTF-8 do; nothing becomes null by itself.
Rule 2: a record without a value (a tombstone) is no failure: its columns are null.
Rule 3: without a dead-letter topic the first record that fails stops the pipeline, with the place of that record. It is
        stopped where its columns are made, not by a condition on them: Spark asks first for what conditions of later
        steps need, such as columns that are not null, and would drop the record before anybody looked at it.
Rule 4: JSON is parsed once. Spark puts what a column is made of into each condition on it, but for what a generator
        makes: so one makes it, of an array of one.
Rule 5: a column of text takes any JSON there is, as Spark's own `from_json` does.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from ottla.pipelines.spark.rows import META, ORIGINAL, Rows, dead_rows
from ottla.pipelines.spark.schema_formats import decoder
from ottla.pipelines.spec import Parse, Source, TopicSource

_PARSED: Final = "_ottla_parsed"
_CORRUPT: Final = "_ottla_corrupt"
_ERROR: Final = "_ottla_error"


def parse(raw: DataFrame, source: Source, columns: StructType | None, *, keep_failures: bool) -> Rows:
    """`raw` has META and ORIGINAL; `columns` are those of JSON."""
    match source.parse:
        case Parse.JSON:
            assert columns is not None, "somebody inferred them"
            parsed = _json(raw, columns, None if keep_failures else source)
            names = columns.fieldNames()
        case Parse.AVRO | Parse.PROTOBUF:
            assert source.schema is not None, "the plan refuses it"
            message = source.message if isinstance(source, TopicSource) else ""
            decode = decoder(source.parse, source.schema.text, message, error=_ERROR)
            parsed = raw.mapInArrow(decode, decode.result_of(raw.schema))
            names = decode.columns.fieldNames()
            parsed = parsed if keep_failures else _checked(parsed, names, source)
        case _:
            parsed, names = _plain(raw, source.parse), ["value"]
            parsed = parsed if keep_failures or source.parse is Parse.BYTES else _checked(parsed, names, source)
    kept = [F.col(name) for name in META if name in raw.columns]
    wide = [*(F.col(_quoted(name)) for name in names), *kept, F.col(ORIGINAL)]
    if not keep_failures:
        return Rows(parsed.select(*wide[:-1]), parsed.select(*wide))
    good = parsed.where(F.col(_ERROR).isNull())
    dead = dead_rows(parsed.where(F.col(_ERROR).isNotNull()), error=F.col(_ERROR))
    return Rows(good.select(*wide[:-1]), good.select(*wide), dead)


def _json(raw: DataFrame, columns: StructType, stopping: Source | None) -> DataFrame:
    """A record that fails has an error, or stops the source given."""
    with_corrupt = StructType([*columns.fields]).add(_CORRUPT, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = F.col(ORIGINAL).cast("string")

    def error(parsed: Column) -> Column:
        told = f"is no JSON object with the columns {columns.simpleString().removeprefix('struct')}"
        return (
            F.when(F.col(ORIGINAL).isNull(), F.lit(None))
            .when(~F.is_valid_utf8(text), F.lit("is no UTF-8, which JSON is"))
            .when(parsed.isNull() | parsed[_CORRUPT].isNotNull(), F.lit(told))
            .cast("string")
        )

    parsed = F.array(F.from_json(text, with_corrupt, options))
    if stopping is not None:
        parsed = F.transform(parsed, lambda one: _or_stop(one, error(one), stopping))
    fields = [F.col(f"{_PARSED}.{_quoted(name)}").alias(name) for name in columns.fieldNames()]
    once = raw.withColumn(_PARSED, F.explode(parsed))
    return once.select(*raw.columns, *fields, error(F.col(_PARSED)).alias(_ERROR))


def _checked(parsed: DataFrame, names: list[str], source: Source) -> DataFrame:
    """The columns of a record that has no error; one that has stops the source."""
    whole = F.struct(*(F.col(_quoted(name)) for name in names))
    once = parsed.withColumn(_PARSED, F.explode(F.array(_or_stop(whole, F.col(_ERROR), source))))
    return once.withColumns({name: F.col(f"{_PARSED}.{_quoted(name)}") for name in names})


def _plain(raw: DataFrame, kind: Parse) -> DataFrame:
    if kind is Parse.BYTES:
        return raw.select(*raw.columns, F.col(ORIGINAL).alias("value"), F.lit(None).cast("string").alias(_ERROR))
    text = F.col(ORIGINAL).cast("string")
    error = F.when(~F.is_valid_utf8(text), F.lit("is no UTF-8, which text is")).cast("string")
    return raw.select(*raw.columns, text.alias("value"), error.alias(_ERROR))


def _or_stop(parsed: Column, error: Column, source: Source) -> Column:
    """What was parsed, or the end of the query, naming the record."""
    if isinstance(source, TopicSource):
        where = F.concat_ws("", "_topic", F.lit("-"), "_partition", F.lit(" at offset "), "_offset")
    else:
        where = F.lit("a line of the files")
    advice = "; name a dead-letter topic under [errors] to go on without such records"
    if isinstance(source, TopicSource) and source.table:
        advice = "; a table is not read without it: write another value for its key, or none"
    told = F.concat_ws(
        "", F.lit(f"source {source.name}: "), where, F.lit(" cannot be parsed: it "), error, F.lit(advice)
    )
    return F.when(error.isNull(), parsed).otherwise(F.raise_error(told))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
