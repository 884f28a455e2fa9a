"""Parses records into rows: the values of a topic, or the lines of files, in the source's format.

Rule 1: a value is parsed completely or fails. A field whose type does not fit its column fails the record, as bytes
        that are not UTF-8 do. It does not become null.
Rule 2: a record without a value (a tombstone) does not fail: its columns are null.
Rule 3: without a dead-letter topic the first record that fails stops the pipeline, with the record's topic, partition
        and offset. The expression of its columns raises, not a filter: Spark evaluates filters of later steps, such as
        "is not null", first, and would drop the record unseen.
Rule 4: JSON is parsed once. Spark copies the expression of a column into each filter on it, unless a generator makes
        the column. So the parsed value comes from `explode` of an array with one element.
Rule 5: a STRING column takes any JSON value, as Spark's `from_json` does.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StructType

from ottla.pipelines.spark.rows import StepRows, dead_rows
from ottla.pipelines.spark.schema_formats import decoder
from ottla.pipelines.spec.model import Parse, Source, TopicSource
from ottla.pipelines.spec.record_columns import META_COLUMNS, VALUE_COLUMN

_PARSED: Final = "_ottla_parsed"
_CORRUPT: Final = "_ottla_corrupt"
_ERROR: Final = "_ottla_error"


def parse(raw: DataFrame, source: Source, columns: StructType | None, *, keep_failures: bool) -> StepRows:
    """The rows of `raw`, which has META_COLUMNS and VALUE_COLUMN. `columns` are needed for JSON only."""
    match source.parse:
        case Parse.JSON:
            assert columns is not None, "JSON has columns, declared or inferred"
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
    kept = [F.col(name) for name in META_COLUMNS if name in raw.columns]
    wide = [*(F.col(_quoted(name)) for name in names), *kept, F.col(VALUE_COLUMN)]
    if not keep_failures:
        return StepRows(parsed.select(*wide[:-1]), parsed.select(*wide))
    good = parsed.where(F.col(_ERROR).isNull())
    dead = dead_rows(parsed.where(F.col(_ERROR).isNotNull()), error=F.col(_ERROR))
    return StepRows(good.select(*wide[:-1]), good.select(*wide), dead)


def _json(raw: DataFrame, columns: StructType, stopping: Source | None) -> DataFrame:
    """Parse JSON. A record that fails gets an error in _ERROR, or stops the query if `stopping` is given."""
    with_corrupt = StructType([*columns.fields]).add(_CORRUPT, "string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = F.col(VALUE_COLUMN).cast("string")

    def error(parsed: Column) -> Column:
        told = f"is not a JSON object with the columns {columns.simpleString().removeprefix('struct')}"
        return (
            F.when(F.col(VALUE_COLUMN).isNull(), F.lit(None))
            .when(~F.is_valid_utf8(text), F.lit("is not UTF-8, as JSON must be"))
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
    """The columns of records without an error. A record with an error stops the query."""
    whole = F.struct(*(F.col(_quoted(name)) for name in names))
    once = parsed.withColumn(_PARSED, F.explode(F.array(_or_stop(whole, F.col(_ERROR), source))))
    return once.withColumns({name: F.col(f"{_PARSED}.{_quoted(name)}") for name in names})


def _plain(raw: DataFrame, kind: Parse) -> DataFrame:
    if kind is Parse.BYTES:
        return raw.select(*raw.columns, F.col(VALUE_COLUMN).alias("value"), F.lit(None).cast("string").alias(_ERROR))
    text = F.col(VALUE_COLUMN).cast("string")
    error = F.when(~F.is_valid_utf8(text), F.lit("is not UTF-8, as text must be")).cast("string")
    return raw.select(*raw.columns, text.alias("value"), error.alias(_ERROR))


def _or_stop(parsed: Column, error: Column, source: Source) -> Column:
    """The parsed value, or an error that stops the query and names the record."""
    if isinstance(source, TopicSource):
        where = F.concat_ws("", "_topic", F.lit("-"), "_partition", F.lit(" at offset "), "_offset")
    else:
        where = F.lit("a line of the files")
    advice = "; set dead_letter under [errors] to continue without such records"
    if isinstance(source, TopicSource) and source.table:
        advice = "; a table cannot leave it out: write another value for its key, or a tombstone"
    told = F.concat_ws(
        "", F.lit(f"source {source.name}: "), where, F.lit(" cannot be parsed: it "), error, F.lit(advice)
    )
    return F.when(error.isNull(), parsed).otherwise(F.raise_error(told))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
