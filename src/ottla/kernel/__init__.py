"""Record batches: the façade over the functions that read, check, stamp, write and compact them.

Rule 1: stateless. Bytes in, values out; no I/O, no clock, no logging. Any function may run in any thread.
Rule 2: for any bytes from outside, the result is a value, `CorruptBatch` or `InvalidRecords`, in time and memory
        proportional to the input and to the limits of decompression.
Rule 3: other packages import this package and nothing inside it. `reference` is the plain-Python implementation and the
        specification; `_native`, built from `native/`, has the same functions and is used if it was built.
Rule 4: the caller must not write to the passed bytes until the call returns, not even from another thread.
"""

from typing import TYPE_CHECKING, Final

from ottla.kernel.batch import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
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
    is_transactional,
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
    FetchedPart,
    Filtered,
    PartEnd,
    ProduceAsk,
    ProducedPart,
    ProducePlace,
    ProduceRules,
    ProduceTopic,
    Record,
    Scan,
)

AT_ONCE_MAX: Final = 1 << 20 if IMPLEMENTATION == "native" else 1 << 16
"""Checking this many bytes of records takes some milliseconds. A batch with more is not checked on the event loop."""

if TYPE_CHECKING or IMPLEMENTATION == "reference":
    from ottla.kernel import reference as implementation
else:
    from ottla.kernel import _native as implementation

BatchBuilder = implementation.BatchBuilder
Columns = implementation.Columns
OffsetMap = implementation.OffsetMap
RecordReader = implementation.RecordReader
TopicBatches = implementation.TopicBatches
batch_crc = implementation.batch_crc
build_batch = implementation.build_batch
build_end_txn_marker = implementation.build_end_txn_marker
check_produced = implementation.check_produced
compress = implementation.compress
crc_ok = implementation.crc_ok
decompress = implementation.decompress
filter_batch = implementation.filter_batch
find_time = implementation.find_time
murmur2 = implementation.murmur2
put_keys = implementation.put_keys
read_columns = implementation.read_columns
read_control = implementation.read_control
read_end_txn_marker = implementation.read_end_txn_marker
read_records = implementation.read_records
scan = implementation.scan
stamp = implementation.stamp
take_produce_requests = implementation.take_produce_requests

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
    "FetchedPart",
    "Filtered",
    "HEADER_SIZE",
    "MAGIC",
    "MAGIC_AT",
    "IMPLEMENTATION",
    "InvalidRecords",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "OffsetMap",
    "PartEnd",
    "ProduceAsk",
    "ProducePlace",
    "ProduceRules",
    "ProduceTopic",
    "ProducedPart",
    "Record",
    "RecordError",
    "RecordReader",
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
    "is_transactional",
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
    "take_produce_requests",
]
