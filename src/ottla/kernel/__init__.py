"""Record batches: the façade over what reads, checks, stamps, writes and compacts them.

Rule 1: stateless. Bytes in, values out; no I/O, no clock, no logging. Any function may run in any thread.
Rule 2: whatever bytes arrive from outside, the answer is a value or `CorruptBatch` / `InvalidRecords`, in time and
        memory proportional to the input and to the limits of decompression.
Rule 3: everybody else imports this package and nothing inside it. `reference` is the plain-Python implementation and
        the specification; `_native`, built from `native/`, has the same functions and is used where it was built.
Rule 4: bytes handed over are not written to until the call returns, not even by another thread.
"""

from typing import TYPE_CHECKING, Final

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
from ottla.kernel.errors import CorruptBatch, InvalidRecords, RecordError, TakesLong
from ottla.kernel.values import (
    Aborted,
    BuiltBatch,
    Checked,
    Damage,
    Exchange,
    FetchedPart,
    Filtered,
    PartEnd,
    ProduceRules,
    Record,
    Room,
    Scan,
)

AT_ONCE_MAX: Final = 1 << 20 if IMPLEMENTATION == "native" else 1 << 16
"""How many bytes of records take some milliseconds to check: what has more is not checked on an event loop."""

if TYPE_CHECKING or IMPLEMENTATION == "reference":
    from ottla.kernel.reference import (
        BatchBuilder,
        Columns,
        OffsetMap,
        RecordReader,
        Run,
        TopicBatches,
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
        Run,
        TopicBatches,
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
    "AT_ONCE_MAX",
    "Aborted",
    "BatchBuilder",
    "BatchHeader",
    "Buffer",
    "BuiltBatch",
    "Checked",
    "Codec",
    "Columns",
    "ControlType",
    "CorruptBatch",
    "Damage",
    "EndTxnMarker",
    "Exchange",
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
    "Room",
    "Run",
    "Scan",
    "TRANSACTIONAL_FLAG",
    "TakesLong",
    "TimestampType",
    "TopicBatches",
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
