"""kio, an independent implementation of the protocol, as an oracle in both directions."""

import datetime
from dataclasses import fields
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from wire_samples import MESSAGE_VERSIONS, filled

from ottla.wire.codec import decode, encode
from ottla.wire.schema import structure_of
from ottla.wire.shapes import Structure
from ottla.wire.types import NO_UUID

KIO = {
    (path.rpartition(":")[2], version): (name, version, kind)
    for name, versions in schema_name_map.items()
    for version, kinds in versions.items()
    for kind, path in kinds.items()
}
KNOWN_TO_KIO = [(cls, version) for cls, version in MESSAGE_VERSIONS if (cls.__name__, version) in KIO]

EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def test_kio_has_every_message_of_the_protocol_and_no_record_of_an_internal_topic() -> None:
    """So that a version kio gains or loses is noticed, and this module never tests less in silence."""
    unknown = {cls.__module__ for cls, version in MESSAGE_VERSIONS if (cls.__name__, version) not in KIO}
    assert all(name.startswith("ottla.wire.records.") for name in unknown)
    assert len(KNOWN_TO_KIO) == len(KIO) == 625


@pytest.mark.parametrize(("cls", "version"), KNOWN_TO_KIO, ids=lambda x: getattr(x, "__name__", x))
def test_kio_reads_what_we_write_and_we_read_what_kio_writes(cls: type[Any], version: int) -> None:
    kio_class = load_entity_schema(*KIO[cls.__name__, version])
    for message in (filled(cls, version), filled(cls, version, seed=31), mostly_empty(cls, version)):
        data = encode(message, version)
        entity, size = entity_reader(kio_class)(data, 0)
        assert size == len(data)
        assert_same(structure_of(cls), version, message, entity)

        written = BytesIO()
        entity_writer(kio_class)(written, entity)
        assert decode(cls, version, written.getvalue()) == message
        assert written.getvalue() == data


def mostly_empty(cls: type[Any], version: int) -> Any:
    """Null wherever the version allows it, and defaults elsewhere."""
    message = structure_of(cls).blank()
    for f in structure_of(cls).fields:
        if f.in_version(version) and f.nullable_in(version):
            setattr(message, f.name, None)
    return message


def assert_same(structure: Structure, version: int, ours: Any, theirs: Any) -> None:
    """Field by field, in the order in which they travel; kio shortens names of times that it gives a type."""
    our_fields = [f for f in structure.fields if f.in_version(version)]
    their_fields = [f.name for f in fields(theirs)]
    assert [f.name.removesuffix("_ms").replace("_", "") for f in our_fields] == [
        name.removesuffix("_ms").replace("_", "") for name in their_fields
    ]
    for f, their_name in zip(our_fields, their_fields, strict=True):
        our_value, their_value = getattr(ours, f.name), getattr(theirs, their_name)
        if f.structure and our_value is not None:
            pairs = zip(our_value, their_value, strict=True) if f.array else [(our_value, their_value)]
            for our_element, their_element in pairs:
                assert_same(f.structure, version, our_element, their_element)
        elif f.structure and not f.options.nullable:
            assert_same(f.structure, version, f.structure.blank(), their_value)  # Not sent: kio has the defaults.
        elif f.primitive and f.primitive.name == "uuid" and not f.array:
            assert (plain(their_value) or NO_UUID) == our_value, f.name  # kio's None is the id of nothing.
        else:
            assert plain(their_value) == our_value, f.name


def plain(value: Any) -> Any:
    """kio's value as the number, text or bytes that travelled."""
    match value:
        case tuple():
            return [plain(element) for element in value]
        case datetime.timedelta():
            return value // MILLISECOND
        case datetime.datetime():
            return (value - EPOCH) // MILLISECOND
        case UUID():
            return value.bytes
        case _:
            return value
