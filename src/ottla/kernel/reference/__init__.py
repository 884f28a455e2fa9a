"""The kernel in plain Python: the specification, and the oracle against which the native one is tested.

Its public names are those of `ottla.kernel._native`.
"""

from ottla.kernel.reference.build import BatchBuilder, build_batch, build_end_txn_marker
from ottla.kernel.reference.checksum import batch_crc, crc_ok
from ottla.kernel.reference.columns import Columns, read_columns
from ottla.kernel.reference.compact import filter_batch, put_keys
from ottla.kernel.reference.compress import compress, decompress
from ottla.kernel.reference.control import read_control, read_end_txn_marker
from ottla.kernel.reference.fetched import RecordReader
from ottla.kernel.reference.murmur import murmur2
from ottla.kernel.reference.offset_map import OffsetMap
from ottla.kernel.reference.produce import check_produced, stamp
from ottla.kernel.reference.produce_request import take_produce_requests
from ottla.kernel.reference.records import find_time, read_records
from ottla.kernel.reference.scan import scan
from ottla.kernel.reference.topic_batches import TopicBatches

__all__ = [
    "BatchBuilder",
    "Columns",
    "OffsetMap",
    "RecordReader",
    "TopicBatches",
    "batch_crc",
    "build_batch",
    "build_end_txn_marker",
    "check_produced",
    "compress",
    "crc_ok",
    "decompress",
    "filter_batch",
    "find_time",
    "murmur2",
    "put_keys",
    "read_columns",
    "read_control",
    "read_end_txn_marker",
    "read_records",
    "scan",
    "stamp",
    "take_produce_requests",
]
