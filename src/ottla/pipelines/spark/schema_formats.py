"""Avro and protobuf: decodes and encodes values by a schema, in Arrow functions on the executors.

Rule 1: the driver determines the columns and compiles the schema. Executors get it compiled and cache it.
Rule 2: a type that Spark lacks becomes the nearest type without loss: enums are STRING, unsigned 32-bit numbers are
        BIGINT. An unsigned 64-bit number that does not fit BIGINT fails its record.
Rule 3: an unset field is null if the schema tells unset from default, and the default if not (scalars of proto3).
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from ottla.pipelines.run.requirements import MissingRequirement
from ottla.pipelines.spark.rows import columns_from
from ottla.pipelines.spec.model import Parse
from ottla.pipelines.spec.record_columns import VALUE_COLUMN

_NEEDS: Final = {Parse.AVRO: "fastavro", Parse.PROTOBUF: "grpc_tools"}

CompiledSchema = tuple[Parse, bytes, str]
"""The format, its schema (Avro's JSON, or a compiled .proto file), and the message's name."""


@dataclass(frozen=True)
class Decoder:
    """A function for Spark's `mapInArrow`. It decodes values of records: it adds the columns of the decoded value, and
    an error column for records that cannot be decoded."""

    form: CompiledSchema
    columns: StructType
    error: str

    def result_of(self, raw: StructType) -> StructType:
        return StructType([*raw.fields, *self.columns.fields, StructField(self.error, StringType())])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decode = _decode_one(self.form)
        types = to_arrow_schema(self.columns)
        for batch in batches:
            values: list[dict[str, Any] | None] = []
            errors: list[str | None] = []
            for value in batch.column(VALUE_COLUMN).to_pylist():
                row, error = _attempt(decode, types, value)
                values.append(row)
                errors.append(error)
            columns = [pa.array([row and row.get(field.name) for row in values], field.type) for field in types]
            names = [*batch.schema.names, *types.names, self.error]
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns, pa.array(errors, pa.string())], names)


@dataclass(frozen=True)
class Encoder:
    """A function for Spark's `mapInArrow`. It encodes a struct column to bytes."""

    form: CompiledSchema
    column: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encode = _encode_one(self.form)
        for batch in batches:
            place = batch.schema.get_field_index(self.column)
            rows = batch.column(place).to_pylist(maps_as_pydicts="strict")
            made = pa.array([encode(row) for row in rows], pa.binary())
            columns = [made if at == place else column for at, column in enumerate(batch.columns)]
            yield pa.RecordBatch.from_arrays(columns, batch.schema.names)


def decoder(kind: Parse, schema: str, message: str, *, error: str) -> Decoder:
    """The decoder for a schema. Raises MissingRequirement, and ValueError if the schema cannot be compiled."""
    form = _form(kind, schema, message)
    return Decoder(form, _avro_columns(schema) if kind is Parse.AVRO else _protobuf_columns(form), error)


def encoder(kind: Parse, schema: str, message: str, *, column: str) -> Encoder:
    return Encoder(_form(kind, schema, message), column)


def _form(kind: Parse, schema: str, message: str) -> CompiledSchema:
    try:
        import_module(_NEEDS[kind])
    except ImportError:
        raise MissingRequirement(
            f"{kind} is parsed with {_NEEDS[kind]}, which is not installed here: pip install 'ottla[spark]'"
        ) from None
    if kind is Parse.AVRO:
        return kind, schema.encode(), ""
    from ottla.pipelines.spark.protobuf import compile_proto

    return kind, *compile_proto(schema, message)


def _attempt(
    decode: Callable[[bytes], dict[str, Any]], types: pa.Schema, value: bytes | None
) -> tuple[dict[str, Any] | None, str | None]:
    """Decode a value; returns the row or the error. A record without a value has neither."""
    if value is None:
        return None, None
    try:
        row = decode(value)
        for field in types:  # One by one, so that a number that does not fit fails only its record.
            pa.array([row.get(field.name)], field.type)
    except Exception as error:  # Wrong bytes may raise anything in the decoder.
        return None, f"does not fit its schema: {type(error).__name__}: {error}"
    return row, None


@cache
def _decode_one(form: CompiledSchema) -> Callable[[bytes], dict[str, Any]]:
    kind, schema, message = form
    if kind is Parse.PROTOBUF:
        from ottla.pipelines.spark.protobuf import message_decoder

        return message_decoder(schema, message)
    import fastavro

    parsed = fastavro.parse_schema(json.loads(schema))

    def decode(value: bytes) -> dict[str, Any]:
        stream = io.BytesIO(value)
        row = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left over")
        assert isinstance(row, dict), "the schema is a record's"
        return row

    return decode


@cache
def _encode_one(form: CompiledSchema) -> Callable[[dict[str, Any]], bytes]:
    kind, schema, message = form
    if kind is Parse.PROTOBUF:
        from ottla.pipelines.spark.protobuf import message_encoder

        return message_encoder(schema, message)
    import fastavro

    parsed = fastavro.parse_schema(json.loads(schema))

    def encode(row: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        return stream.getvalue()

    return encode


_AVRO_TYPES: Final = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "fixed": "BINARY",
    "string": "STRING",
    "enum": "STRING",
}
_AVRO_LOGICAL: Final = {
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP_NTZ",
    "uuid": "STRING",
}


def _avro_columns(text: str) -> StructType:
    fields = json.loads(text)["fields"]
    named: dict[str, Any] = {}
    return columns_from(", ".join(f"`{field['name']}` {_avro_type(field['type'], named)}" for field in fields))


def _avro_type(kind: Any, named: dict[str, Any]) -> str:
    if isinstance(kind, list):
        others = [one for one in kind if one != "null"]
        if len(others) != 1:
            raise ValueError(f"a union of {len(others)} types has no column: use one type, or null and one type")
        return _avro_type(others[0], named)
    if isinstance(kind, str):
        if kind in named:
            return _avro_type(named[kind], named)
        if kind not in _AVRO_TYPES:
            raise ValueError(f"{kind} is neither an Avro type nor a type named before it")
        return _AVRO_TYPES[kind]
    if "name" in kind:
        named[kind["name"]] = kind
    if kind.get("logicalType") == "decimal":
        return f"DECIMAL({kind['precision']},{kind.get('scale', 0)})"
    if kind.get("logicalType") in _AVRO_LOGICAL:
        return _AVRO_LOGICAL[kind["logicalType"]]
    match kind["type"]:
        case "record":
            fields = (f"`{field['name']}`: {_avro_type(field['type'], named)}" for field in kind["fields"])
            return f"STRUCT<{', '.join(fields)}>"
        case "array":
            return f"ARRAY<{_avro_type(kind['items'], named)}>"
        case "map":
            return f"MAP<STRING, {_avro_type(kind['values'], named)}>"
        case other:
            return _avro_type(other, named)


def _protobuf_columns(form: CompiledSchema) -> StructType:
    from ottla.pipelines.spark.protobuf import columns_of

    return columns_from(columns_of(form[1], form[2]))
