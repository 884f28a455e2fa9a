"""`.snapshot` files: the producer state just before an offset, so that opening a log need not read all of it.

Layout: version (2 bytes), CRC32C of the bytes after it (4 bytes), the producers. A file that fails the check raises
`BadProducerSnapshot`; the caller then uses an older snapshot, or rebuilds the state from the log.
"""

from struct import Struct

from crc32c import crc32c

from ottla.core.log.producers import NO_OFFSET, Producer, RememberedBatch
from ottla.wire.codec import Malformed, decode, encode
from ottla.wire.records.storage import ProducerEntry, ProducerSnapshot

_VERSION = 1
_PREFIX = Struct(">hI")


class BadProducerSnapshot(ValueError):
    """The bytes are not a complete producer snapshot."""


def encode_snapshot(producers: list[Producer]) -> bytes:
    entries = [
        ProducerEntry(
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_offset=producer.last_data_offset,
            offset_delta=producer.batches[-1].offset_delta if producer.batches else 0,
            timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_first_offset=NO_OFFSET if producer.txn_first_offset is None else producer.txn_first_offset,
        )
        for producer in producers
    ]
    body = encode(ProducerSnapshot(crc=0, producer_entries=entries), _VERSION)[4:]
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[Producer]:
    if len(data) < _PREFIX.size:
        raise BadProducerSnapshot(f"{len(data)} bytes are too few for a snapshot")
    version, crc = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise BadProducerSnapshot(f"version {version}; {_VERSION} is known")
    if crc != (actual := crc32c(data[_PREFIX.size :])):
        raise BadProducerSnapshot(f"CRC32C is {actual:08x}, the file says {crc:08x}")
    try:
        snapshot = decode(ProducerSnapshot, version, data[2:])
    except Malformed as error:
        raise BadProducerSnapshot(str(error)) from error
    return [_producer(entry) for entry in snapshot.producer_entries]


def _producer(entry: ProducerEntry) -> Producer:
    first_offset = entry.current_txn_first_offset
    producer = Producer(
        entry.producer_id,
        entry.epoch,
        entry.coordinator_epoch,
        entry.timestamp,
        first_offset if first_offset >= 0 else None,
    )
    if entry.last_offset >= 0:
        producer.batches.append(
            RememberedBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
        )
    return producer
