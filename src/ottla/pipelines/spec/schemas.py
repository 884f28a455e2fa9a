"""Schemas of values that are parsed and written: which formats need one, and what can be checked before Spark starts.

Rule 1: a schema is a text, `{ file = "orders.avsc" }` for a text in a file beside the pipeline, or `{ infer = 1000 }`
        to infer the columns from that many records. The file is read with the pipeline, and the spec holds its text.
Rule 2: JSON, CSV and Parquet may leave it out; the columns are then inferred from 1,000 records. Avro and protobuf need
        a schema. Text and bytes have the single column `value`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.pipelines.spec.columns import parse_columns
from ottla.pipelines.spec.model import Parse, Schema
from ottla.pipelines.spec.problems import Unfit, did_you_mean
from ottla.pipelines.spec.values import ValueKind, whole

SAMPLE_RECORDS: Final = 1_000
INFERRED: Final = (Parse.JSON, Parse.CSV, Parse.PARQUET)
WITHOUT: Final = (Parse.TEXT, Parse.BYTES)
_EXPECTS: Final = 'a text, { file = "orders.avsc" } or { infer = 1000 }'
_SAMPLE: Final = whole(1, 1_000_000)
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MESSAGE: Final = re.compile(r"\bmessage\s+([A-Za-z_]\w*)\s*\{")


@dataclass(frozen=True)
class SchemaFile:
    path: str


def _read(value: object) -> Schema | SchemaFile:
    if isinstance(value, str) and value.strip():
        return Schema(value)
    if not isinstance(value, Mapping) or len(value) != 1:
        raise Unfit(_EXPECTS)
    key, given = next(iter(value.items()))
    if key == "file" and isinstance(given, str) and given:
        return SchemaFile(given)
    if key == "infer":
        try:
            return Schema("", _SAMPLE.read(given))
        except Unfit as unfit:
            raise Unfit(unfit.allowed, unfit.told, ("infer",)) from None
    raise Unfit(_EXPECTS, f"expected {_EXPECTS}{did_you_mean(str(key), ('file', 'infer'))}")


def _write(schema: Schema) -> Any:
    return schema.text or {"infer": schema.sample_records}


SCHEMA: Final[ValueKind[Any]] = ValueKind(_EXPECTS, _read, _write)


def check_schema(parse: Parse, schema: Schema, message: str) -> None:
    """Raises Unfit if the schema does not fit the format."""
    if parse in WITHOUT:
        raise Unfit("no schema", f"{parse} takes no schema: it has the single column value")
    if not schema.text:
        if parse not in INFERRED:
            raise Unfit(f"a schema of {parse}", f"{parse} cannot be inferred; write the schema or name its file")
    elif parse is Parse.AVRO:
        _avro(schema.text)
    elif parse is Parse.PROTOBUF:
        _protobuf(schema.text, message)
    else:
        parse_columns(schema.text)


def columns_of(parse: Parse, schema: Schema | None) -> tuple[str, ...] | None:
    """The names of the columns; None if only Spark can tell them."""
    if parse in WITHOUT:
        return ("value",)
    if schema is None or not schema.text or parse is Parse.PROTOBUF:
        return None
    if parse is Parse.AVRO:
        return tuple(_avro(schema.text))
    return tuple(column.name for column in parse_columns(schema.text))


def _avro(text: str) -> list[str]:
    allowed = "an Avro record's schema in JSON"
    try:
        schema = json.loads(text)
    except json.JSONDecodeError as error:
        raise Unfit(allowed, f"is not JSON: {error.msg}", line_in_text=error.lineno - 1) from None
    fields = schema.get("fields") if isinstance(schema, dict) and schema.get("type") == "record" else None
    if not isinstance(fields, list):
        raise Unfit(allowed, 'is not a record; expected { "type": "record", "name": ..., "fields": [...] }')
    names = [field.get("name") if isinstance(field, dict) and "type" in field else None for field in fields]
    if not all(isinstance(name, str) for name in names):
        raise Unfit(allowed, "has a field without a name or a type")
    return [str(name) for name in names]


def _protobuf(text: str, message: str) -> None:
    messages = _MESSAGE.findall(_COMMENT.sub("", text))
    wanted = message.rpartition(".")[2]
    if not messages:
        raise Unfit("the text of a .proto file", "has no message; expected the text of a .proto file")
    if message and wanted not in messages:
        hint = did_you_mean(wanted, messages)
        raise Unfit("a message that is there", f"has no message {wanted}; it has {', '.join(messages)}{hint}")
