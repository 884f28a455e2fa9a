"""Reads control records from their batches; `kernel/control.py` has the rules."""

from ottla.kernel.batch import Buffer, read_header
from ottla.kernel.control import ControlType, EndTxnMarker, control_type, end_txn_marker
from ottla.kernel.errors import CorruptBatch
from ottla.kernel.reference.records import read_records


def read_control(buffer: Buffer, position: int = 0) -> tuple[ControlType, bytes]:
    """Type and value of the first control record of the control batch at `position`."""
    header = read_header(buffer, position)
    records = read_records(buffer, header, position)
    if not header.is_control or not records:
        kind = "control batch without a record" if header.is_control else "batch of data"
        raise CorruptBatch(f"offset {header.base_offset} is a {kind}, not a control record")
    return control_type(records[0]), records[0].value or b""


def read_end_txn_marker(buffer: Buffer, position: int = 0) -> EndTxnMarker:
    """The marker in the control batch at `position`. Raises CorruptBatch if it holds another control record."""
    return end_txn_marker(*read_control(buffer, position))
