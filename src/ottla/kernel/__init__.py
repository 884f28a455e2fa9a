"""Record batches: the façade over what reads, checks, stamps, writes and compacts them.

Rule 1: stateless. Bytes in, values out; no I/O, no clock, no logging. Any function may run in any thread.
Rule 2: whatever bytes arrive from outside, the answer is a value or `CorruptBatch` / `InvalidRecords`, in time and
        memory proportional to the input and to the limits of decompression.
Rule 3: everybody else imports this package and nothing inside it. `reference` is the plain-Python implementation and
        the specification; `_native`, built from `native/`, has the same functions and is used where it was built.
Rule 4: bytes handed over are not written to until the call returns, not even by another thread.
"""

from typing import TYPE_CHECKING

from ottla.kernel.batch import (
    HEADER_SIZE,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    Codec,
    TimestampType,
    increment_sequence,
    pack_header,
    read_header,
)
from ottla.kernel.choice import IMPLEMENTATION
from ottla.kernel.control import ControlType, EndTxnMarker, control_key, control_type
from ottla.kernel.errors import CorruptBatch, InvalidRecords, RecordError
from ottla.kernel.values import (
    Aborted,
    Checked,
    Damage,
    FetchedPart,
    Filtered,
    PartEnd,
    ProduceRules,
    Record,
    Scan,
)

if TYPE_CHECKING or IMPLEMENTATION == "reference":
    from ottla.kernel.reference import (
        BatchBuilder,
        Columns,
        OffsetMap,
        RecordReader,
        batch_crc,
        build_batch,
        build_end_txn_marker,
        check_produced,
        compress,
        crc_ok,
        decompress,
        filter_batch,
        find_time,
        murmur2,
        put_keys,
        read_columns,
        read_control,
        read_end_txn_marker,
        read_records,
        scan,
        stamp,
    )
else:
    from ottla.kernel._native import (
        BatchBuilder,
        Columns,
        OffsetMap,
        RecordReader,
        batch_crc,
        build_batch,
        build_end_txn_marker,
        check_produced,
        compress,
        crc_ok,
        decompress,
        filter_batch,
        find_time,
        murmur2,
        put_keys,
        read_columns,
        read_control,
        read_end_txn_marker,
        read_records,
        scan,
        stamp,
    )

__all__ = [
    "Aborted",
    "BatchBuilder",
    "BatchHeader",
    "Buffer",
    "Checked",
    "Codec",
    "Columns",
    "ControlType",
    "CorruptBatch",
    "Damage",
    "EndTxnMarker",
    "FetchedPart",
    "Filtered",
    "HEADER_SIZE",
    "IMPLEMENTATION",
    "InvalidRecords",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "OffsetMap",
    "PartEnd",
    "ProduceRules",
    "Record",
    "RecordError",
    "RecordReader",
    "Scan",
    "TRANSACTIONAL_FLAG",
    "TimestampType",
    "batch_crc",
    "build_batch",
    "build_end_txn_marker",
    "check_produced",
    "compress",
    "control_key",
    "control_type",
    "crc_ok",
    "decompress",
    "filter_batch",
    "find_time",
    "increment_sequence",
    "murmur2",
    "pack_header",
    "put_keys",
    "read_columns",
    "read_control",
    "read_end_txn_marker",
    "read_header",
    "read_records",
    "scan",
    "stamp",
]
