"""Avro and protobuf: values by a written schema, read and made in Arrow functions on the executors.

Rule 1: the driver settles the columns and compiles the schema; executors get what is ready to use, and keep it.
Rule 2: what a format has and Spark has not becomes the nearest thing that loses nothing: enums are STRING, unsigned 32
        bits BIGINT. An unsigned 64-bit number that BIGINT cannot hold fails its record.
Rule 3: a field that is not set is null where the schema can tell, and its default where it cannot (proto3's scalars).
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

from ottla.pipelines.requirements import MissingRequirement
from ottla.pipelines.spark.rows import ORIGINAL, columns_from
from ottla.pipelines.spec import Parse

_NEEDS: Final = {Parse.AVRO: "fastavro", Parse.PROTOBUF: "grpc_tools"}

Form = tuple[Parse, bytes, str]
"""The format, its schema made ready (Avro's JSON, a compiled .proto file), and the message's name."""


@dataclass(frozen=True)
class Decoder:
    """For mapInArrow: adds the columns of the value, and the error of a record that has none."""

    form: Form
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
            for value in batch.column(ORIGINAL).to_pylist():
                row, error = _attempt(decode, types, value)
                values.append(row)
                errors.append(error)
            columns = [pa.array([row and row.get(field.name) for row in values], field.type) for field in types]
            names = [*batch.schema.names, *types.names, self.error]
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns, pa.array(errors, pa.string())], names)


@dataclass(frozen=True)
class Encoder:
    """For mapInArrow: a struct column becomes the bytes of its value."""

    form: Form
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
    """Raises MissingRequirement, and ValueError for a schema that cannot be compiled."""
    form = _form(kind, schema, message)
    return Decoder(form, _avro_columns(schema) if kind is Parse.AVRO else _protobuf_columns(form), error)


def encoder(kind: Parse, schema: str, message: str, *, column: str) -> Encoder:
    return Encoder(_form(kind, schema, message), column)


def _form(kind: Parse, schema: str, message: str) -> Form:
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
    """The row and no error, or no row and the error; neither for a record without a value."""
    if value is None:
        return None, None
    try:
        row = decode(value)
        for field in types:  # Here, and not with its batch: one number that does not fit fails its record alone.
            pa.array([row.get(field.name)], field.type)
    except Exception as error:  # Whatever the bytes did to the decoder, they are what is wrong.
        return None, f"does not fit its schema: {type(error).__name__}: {error}"
    return row, None


@cache
def _decode_one(form: Form) -> Callable[[bytes], dict[str, Any]]:
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
def _encode_one(form: Form) -> Callable[[dict[str, Any]], bytes]:
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
            raise ValueError(f"{kind} is no type of Avro, nor one named before it")
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


def _protobuf_columns(form: Form) -> StructType:
    from ottla.pipelines.spark.protobuf import columns_of

    return columns_from(columns_of(form[1], form[2]))
