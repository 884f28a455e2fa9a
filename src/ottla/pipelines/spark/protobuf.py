"""Protobuf by the text of a .proto file: compiles it on the driver, decodes and encodes with the protobuf library."""

import os
import tempfile
from collections.abc import Callable
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

_FILE: Final = "pipeline.proto"
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_SCALARS: Final = {
    FieldDescriptor.CPPTYPE_BOOL: "BOOLEAN",
    FieldDescriptor.CPPTYPE_INT32: "INT",
    FieldDescriptor.CPPTYPE_UINT32: "BIGINT",
    FieldDescriptor.CPPTYPE_INT64: "BIGINT",
    FieldDescriptor.CPPTYPE_UINT64: "BIGINT",
    FieldDescriptor.CPPTYPE_FLOAT: "FLOAT",
    FieldDescriptor.CPPTYPE_DOUBLE: "DOUBLE",
    FieldDescriptor.CPPTYPE_ENUM: "STRING",
}


def compile_proto(text: str, message: str) -> tuple[bytes, str]:
    """The compiled file with its imports, and the message's full name. Raises ValueError."""
    import grpc_tools
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory(prefix="ottla-proto-") as directory:
        made = os.path.join(directory, "compiled")
        with open(os.path.join(directory, _FILE), "w", encoding="utf-8") as file:
            file.write(text)
        known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
        arguments = [
            "protoc",
            f"-I{directory}",
            f"-I{known}",
            f"--descriptor_set_out={made}",
            "--include_imports",
            _FILE,
        ]
        if protoc.main(arguments) != 0:
            raise ValueError("the .proto file cannot be compiled; the compiler's message is above")
        with open(made, "rb") as file:
            compiled = file.read()
    return compiled, message or _first_message(compiled)


def columns_of(compiled: bytes, message: str) -> str:
    """The message's columns, declared in SQL."""
    return ", ".join(f"`{field.name}` {_type(field, ())}" for field in descriptor_of(compiled, message).fields)


def message_decoder(compiled: bytes, message: str) -> Callable[[bytes], dict[str, Any]]:
    make = message_factory.GetMessageClass(descriptor_of(compiled, message))
    return lambda value: _values(make.FromString(value))


def message_encoder(compiled: bytes, message: str) -> Callable[[dict[str, Any]], bytes]:
    make = message_factory.GetMessageClass(descriptor_of(compiled, message))
    return lambda row: make(**_without_nulls(row)).SerializeToString(deterministic=True)


def _first_message(compiled: bytes) -> str:
    file = descriptor_pb2.FileDescriptorSet.FromString(compiled).file[-1]
    return f"{file.package}.{file.message_type[0].name}".lstrip(".")


def descriptor_of(compiled: bytes, message: str) -> Descriptor:
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(compiled).file
    for file in files:
        pool.Add(file)
    package = files[-1].package
    name = message if "." in message or not package else f"{package}.{message}"
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise ValueError(f"the .proto file has no message {name}") from None


def _type(field: FieldDescriptor, above: tuple[str, ...]) -> str:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        key, value = kind.fields
        return f"MAP<{_one(key, above)}, {_one(value, above)}>"
    return f"ARRAY<{_one(field, above)}>" if field.is_repeated else _one(field, above)


def _one(field: FieldDescriptor, above: tuple[str, ...]) -> str:
    kind = field.message_type
    if kind is None:
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return "BINARY" if field.type == FieldDescriptor.TYPE_BYTES else "STRING"
        return _SCALARS[field.cpp_type]
    if kind.full_name == _TIMESTAMP:
        return "TIMESTAMP"
    if kind.full_name in above:
        raise ValueError(f"message {kind.full_name} contains itself, which columns cannot")
    fields = (f"`{inner.name}`: {_type(inner, (*above, kind.full_name))}" for inner in kind.fields)
    return f"STRUCT<{', '.join(fields)}>"


def _values(message: Message) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: FieldDescriptor) -> Any:
    value = getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        of = kind.fields_by_name["value"]
        return [(key, _plain(of, one)) for key, one in value.items()]
    if field.is_repeated:
        return [_plain(field, one) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(field, value)


def _plain(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    if field.message_type is None:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        return value.ToDatetime()
    return _values(value)


def _without_nulls(value: Any) -> Any:
    """The row without null fields, which a message does not set."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value
