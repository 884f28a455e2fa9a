"""Decodes the records of Kafka's internal topics by their declarations.

`__consumer_offsets`, `__transaction_state` and `__share_group_state`: the key begins with the record's type, the value
with its version, 2 bytes each. `__cluster_metadata`: the value begins with a frame version (1), the record's type and
its version, as unsigned varints; there is no key.
"""

from types import ModuleType
from typing import Any

from ottla.core.log.files import METADATA_TOPIC
from ottla.kernel import Record
from ottla.wire.codec import Malformed, UnsupportedVersion, decode
from ottla.wire.records import (
    consumer_groups,
    groups,
    metadata,
    share,
    share_groups,
    streams_groups,
    transactions,
)
from ottla.wire.schema import message_of, structure_of

_FRAME_VERSION = 1
_COORDINATED = {
    "__consumer_offsets": (groups, consumer_groups, share_groups, streams_groups),
    "__transaction_state": (transactions,),
    "__share_group_state": (share,),
}


class NotDecodable(ValueError):
    """The record's type is unknown; its bytes are shown instead."""


def _by_type(modules: tuple[ModuleType, ...], ending: str) -> dict[int, type]:
    found: dict[int, type] = {}
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, type) and name.endswith(ending) and "__message__" in vars(value):
                record_type = message_of(value).record_type
                if record_type is not None:
                    found[record_type] = value
    return found


_KEYS = {topic: _by_type(modules, "Key") for topic, modules in _COORDINATED.items()}
_VALUES = {topic: _by_type(modules, "Value") for topic, modules in _COORDINATED.items()}
_METADATA = _by_type((metadata,), "Record")


def decoded(topic: str, record: Record) -> dict[str, Any] | None:
    """`key` and `value` of a record of an internal topic as fields; None for other topics and types."""
    try:
        if topic == METADATA_TOPIC and record.value:
            return {"key": None, "value": _metadata_value(record.value)}
        if topic in _COORDINATED and record.key:
            return _coordinated(topic, record.key, record.value)
    except (NotDecodable, Malformed, UnsupportedVersion):
        pass
    return None


def _coordinated(topic: str, key: bytes, value: bytes | None) -> dict[str, Any]:
    record_type = int.from_bytes(key[:2], "big")
    if record_type not in _KEYS[topic] or record_type not in _VALUES[topic]:
        raise NotDecodable(f"type {record_type}")
    fields: dict[str, Any] = {"key": _fields_of(decode(_KEYS[topic][record_type], 0, key[2:])), "value": None}
    if value is not None:
        version = int.from_bytes(value[:2], "big")
        fields["value"] = _fields_of(decode(_VALUES[topic][record_type], version, value[2:]))
    return fields


def _metadata_value(value: bytes) -> dict[str, Any]:
    frame_version, position = _unsigned(value, 0)
    record_type, position = _unsigned(value, position)
    version, position = _unsigned(value, position)
    if frame_version != _FRAME_VERSION or record_type not in _METADATA:
        raise NotDecodable(f"frame {frame_version}, type {record_type}")
    return _fields_of(decode(_METADATA[record_type], version, value[position:]))


def _unsigned(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(data) and shift < 35:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise NotDecodable("no varint")


def _fields_of(message: Any) -> dict[str, Any]:
    name = type(message).__name__
    return {"record": name.removesuffix("Key").removesuffix("Value").removesuffix("Record"), **_fields(message)}


def _fields(message: Any) -> dict[str, Any]:
    return {field.name: _value(getattr(message, field.name)) for field in structure_of(type(message)).fields}


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(one) for one in value]
    if hasattr(type(value), "__structure__"):
        return _fields(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value if value is None or isinstance(value, bytes | str | int | float) else str(value)
