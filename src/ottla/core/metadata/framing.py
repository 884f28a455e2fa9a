"""The encoding of a metadata record in the log: frame version, type and version as unsigned varints, then the message.

Rule 1: the cluster's `metadata.version` determines the version in which a record is written, so that every node that
        supports that level can read it.
Rule 2: a record that cannot be decoded is a fault. It is never skipped, because the image after it would be wrong.
"""

from typing import Final

from ottla.core.metadata.records import MetadataRecord
from ottla.wire.codec import Malformed, UnsupportedVersion, decode, encode
from ottla.wire.records import metadata
from ottla.wire.records.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from ottla.wire.schema import message_of

_FRAME_VERSION: Final = 1
_VARINT_SHIFT_MAX: Final = 35

# Levels of metadata.version at which the version of a record changes.
ZK_MIGRATION_LEVEL: Final = 8  # 3.4-IV0
DIRECTORY_LEVEL: Final = 17  # 3.7-IV2
ELR_LEVEL: Final = 23  # 4.0-IV1
CORDON_LEVEL: Final = 30  # 4.3-IV0


class BadMetadataRecord(ValueError):
    """The bytes are not a metadata record of a known type and version."""


RECORD_CLASSES: Final[dict[int, type]] = {
    record_type: value
    for name, value in vars(metadata).items()
    if name.endswith("Record")
    and isinstance(value, type)
    and (record_type := message_of(value).record_type) is not None
}


def encode_record(record: MetadataRecord, level: int) -> bytes:
    """The bytes of a record in a cluster whose metadata.version is `level`."""
    record_type = message_of(type(record)).record_type
    assert record_type is not None, f"{type(record).__name__} is no metadata record"
    version = record_version(record, level)
    head = bytes((_FRAME_VERSION, record_type, version))  # Each varint takes one byte.
    return head + encode(record, version)


def record_version(record: MetadataRecord, level: int) -> int:
    if isinstance(record, PartitionRecord | PartitionChangeRecord):
        return 2 if level >= ELR_LEVEL else 1 if level >= DIRECTORY_LEVEL else 0
    if isinstance(record, RegisterBrokerRecord):
        return (
            4 if level >= CORDON_LEVEL else 3 if level >= DIRECTORY_LEVEL else 2 if level >= ZK_MIGRATION_LEVEL else 1
        )
    if isinstance(record, BrokerRegistrationChangeRecord):
        # As in Kafka, the lowest version that has the fields which are set.
        if record.cordoned_log_dirs is not None:
            return 3
        return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
    return 0


def decode_record(value: bytes | None) -> MetadataRecord:
    if value is None:
        raise BadMetadataRecord("a metadata record without a value")
    frame_version, position = _unsigned(value, 0)
    record_type, position = _unsigned(value, position)
    version, position = _unsigned(value, position)
    if frame_version != _FRAME_VERSION:
        raise BadMetadataRecord(f"frame version {frame_version}; {_FRAME_VERSION} is known")
    cls = RECORD_CLASSES.get(record_type)
    if cls is None:
        raise BadMetadataRecord(f"record type {record_type} is unknown: a newer release wrote it")
    try:
        return decode(cls, version, value[position:])
    except (Malformed, UnsupportedVersion) as error:
        raise BadMetadataRecord(str(error)) from error


def _unsigned(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while position < len(data) and shift < _VARINT_SHIFT_MAX:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise BadMetadataRecord(f"no whole varint at byte {position} of {len(data)}")
