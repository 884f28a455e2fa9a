"""Control records: what brokers write into the log for brokers and consumers.

    key: version 2 | type 2          value of an end-of-transaction marker: version 2 | coordinator epoch 4

Rule 1: a later version only adds at the end, so it is read as the one known here.
Rule 2: a type that is not known is skipped by readers, not refused.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from ottla.kernel.batch import Buffer, read_header
from ottla.kernel.errors import CorruptBatch
from ottla.kernel.reference.records import Record, read_records

_KEY: Final = Struct(">hh")
_END_TXN_VALUE: Final = Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    """What a control record says; the numbers are those of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class EndTxnMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that said so."""

    control_type: ControlType
    coordinator_epoch: int


def read_control(buffer: Buffer, position: int = 0) -> tuple[ControlType, bytes]:
    """Type and value of the first control record of the control batch at `position`."""
    header = read_header(buffer, position)
    records = read_records(buffer, header, position)
    if not header.is_control or not records:
        kind = "control batch without a record" if header.is_control else "batch of data"
        raise CorruptBatch(f"offset {header.base_offset} is a {kind}, not a control record")
    return control_type(records[0]), records[0].value or b""


def control_type(record: Record) -> ControlType:
    """What the key of a control record names."""
    key = record.key or b""
    if len(key) < _KEY.size:
        raise CorruptBatch(f"the control record at {record.offset} has a key of {len(key)} bytes, {_KEY.size} needed")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"the control record at {record.offset} has version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def read_end_txn_marker(buffer: Buffer, position: int = 0) -> EndTxnMarker:
    """The marker in the control batch at `position`; refused if the batch holds another control record."""
    kind, value = read_control(buffer, position)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise CorruptBatch(f"a {kind.name} control record does not end a transaction")
    if len(value) < _END_TXN_VALUE.size:
        raise CorruptBatch(f"a {kind.name} marker has a value of {len(value)} bytes, {_END_TXN_VALUE.size} needed")
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(value)
    if version < 0:
        raise CorruptBatch(f"a {kind.name} marker has version {version}")
    return EndTxnMarker(kind, coordinator_epoch)


def control_key(kind: ControlType) -> bytes:
    if kind is ControlType.UNKNOWN:
        raise ValueError("a control record needs a type that is known")
    return _KEY.pack(_VERSION, kind)


def end_txn_value(coordinator_epoch: int) -> bytes:
    return _END_TXN_VALUE.pack(_VERSION, coordinator_epoch)
