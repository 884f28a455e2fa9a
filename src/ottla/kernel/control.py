"""Control records, which brokers write into the log for brokers and consumers.

  key: version 2 | type 2          value of an end-of-transaction marker: version 2 | coordinator epoch 4

Rule 1: a later version only appends fields, so it is read as the known one.
Rule 2: readers skip an unknown type.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from ottla.kernel.errors import CorruptBatch
from ottla.kernel.values import Record

_KEY: Final = Struct(">hh")
_END_TXN_VALUE: Final = Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    """The type of a control record; the numbers are those of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class EndTxnMarker(NamedTuple):
    """The end of a transaction, and the epoch of the coordinator that decided it."""

    control_type: ControlType
    coordinator_epoch: int


def control_type(record: Record) -> ControlType:
    """The type in the key of a control record."""
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


def end_txn_marker(kind: ControlType, value: bytes) -> EndTxnMarker:
    """Decode a marker from its type and value."""
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
