"""Record batches as a client sees them: encoded and decoded here without the broker's code.

The checkers must not share a mistake with the code they check, so this is a second, simple implementation of the
format. Every batch is checked against its CRC before it is decoded.
"""

import gzip
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cramjam
import crc32c
import lz4.frame  # type: ignore[import-untyped]
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)

TIMESTAMP_TYPE, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
ABORT, COMMIT = 0, 1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_FROM = 21  # The first byte under the CRC.
_XERIAL = b"\x82SNAPPY\x00"
_REMEMBERED = 5_000  # Checkers read the same batches repeatedly.
_TO_ZSTD, _FROM_ZSTD = zstandard.ZstdCompressor(), zstandard.ZstdDecompressor()


class BadBatch(Exception):
    """The bytes are not what a producer sent: a client would refuse them."""


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: tuple[DecodedRecord, ...]
    max_timestamp: int
    size: int

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_commit(self) -> bool:
        """Of a control batch: whether its marker commits. The key is version and type, two 16-bit numbers."""
        key = self.records[0].key or b""
        return bool(struct.unpack_from(">hh", key)[1] == COMMIT)


def encode(
    records: Sequence[DecodedRecord],
    *,
    codec: int = NONE,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch as a producer sends it: base offset 0, no leader epoch; offsets count from the first record."""
    first = records[0]
    body = b"".join(_encode_record(record, first) for record in records)
    times = [record.timestamp for record in records]
    covered = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        records[-1].offset - first.offset,
        first.timestamp,
        max(times),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    ) + _compress(codec, body)
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c.crc32c(covered)) + covered


def encode_marker(commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp: int) -> bytes:
    """The control batch that ends a transaction."""
    key = struct.pack(">hh", 0, COMMIT if commit else ABORT)
    marker = DecodedRecord(0, timestamp, key, struct.pack(">hi", 0, coordinator_epoch))
    return encode([marker], attributes=TRANSACTIONAL | CONTROL, producer_id=producer_id, producer_epoch=producer_epoch)


def decode_all(data: bytes) -> Iterator[DecodedBatch]:
    """The whole batches in `data`; a cut one at the end is ignored, as by a client."""
    position = 0
    while len(data) - position >= _HEADER.size:
        length = struct.unpack_from(">i", data, position + 8)[0]
        if length < _HEADER.size - 12:
            raise BadBatch(f"a batch at byte {position} claims {length} bytes")
        if len(data) - position < length + 12:
            return
        yield decode(data[position : position + length + 12])
        position += length + 12


@lru_cache(maxsize=_REMEMBERED)
def decode(data: bytes) -> DecodedBatch:
    (base, _, epoch, magic, crc, attributes, delta, first_time, max_time, pid, pid_epoch, sequence, count) = (
        _HEADER.unpack_from(data)
    )
    if magic != 2:
        raise BadBatch(f"the batch at offset {base} has magic {magic}")
    if crc32c.crc32c(data[_CRC_FROM:]) != crc:
        raise BadBatch(f"the batch at offset {base} fails its CRC")
    body = _Reader(_decompress(attributes & 7, data[_HEADER.size :]))
    append_time = max_time if attributes & TIMESTAMP_TYPE else None
    records = tuple(body.record(base, first_time, append_time) for _ in range(count))
    return DecodedBatch(base, epoch, attributes, base + delta, pid, pid_epoch, sequence, records, max_time, len(data))


def _encode_record(record: DecodedRecord, first: DecodedRecord) -> bytes:
    fields = [
        b"\0",
        _zigzag(record.timestamp - first.timestamp),
        _zigzag(record.offset - first.offset),
        _blob(record.key),
        _blob(record.value),
        _zigzag(len(record.headers)),
    ]
    for name, value in record.headers:
        fields += [_blob(name.encode()), _blob(value)]
    body = b"".join(fields)
    return _zigzag(len(body)) + body


def _blob(data: bytes | None) -> bytes:
    return _zigzag(-1) if data is None else _zigzag(len(data)) + data


def _zigzag(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest >= 0x80:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def record(self, base_offset: int, first_time: int, append_time: int | None) -> DecodedRecord:
        self._number()  # the length
        self._at += 1  # attributes
        timestamp = first_time + self._number()
        offset = base_offset + self._number()
        key, value = self._blob(), self._blob()
        headers = tuple(((self._blob() or b"").decode(), self._blob()) for _ in range(self._number()))
        return DecodedRecord(offset, timestamp if append_time is None else append_time, key, value, headers)

    def _number(self) -> int:
        result = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (result >> 1) ^ -(result & 1)
            shift += 7

    def _blob(self) -> bytes | None:
        length = self._number()
        if length < 0:
            return None
        self._at += length
        return self._data[self._at - length : self._at]


def _compress(codec: int, body: bytes) -> bytes:
    library: Any = cramjam
    if codec == GZIP:
        return gzip.compress(body, mtime=0)
    if codec == SNAPPY:
        return bytes(library.snappy.compress_raw(body))
    if codec == LZ4:
        return bytes(lz4.frame.compress(body))
    if codec == ZSTD:
        return _TO_ZSTD.compress(body)
    return body


def _decompress(codec: int, body: bytes) -> bytes:
    if codec == GZIP:
        return gzip.decompress(body)
    if codec == SNAPPY:
        return _unsnap(body)
    if codec == LZ4:
        return bytes(lz4.frame.decompress(body))
    if codec == ZSTD:
        return _FROM_ZSTD.decompressobj().decompress(body)
    return body


def _unsnap(body: bytes) -> bytes:
    """Plain snappy, or the chunks of the Java library: a magic, two versions, then length and data of each."""
    library: Any = cramjam
    if not body.startswith(_XERIAL):
        return bytes(library.snappy.decompress_raw(body))
    at, parts = 16, []
    while at < len(body):
        length = struct.unpack_from(">i", body, at)[0]
        parts.append(bytes(library.snappy.decompress_raw(body[at + 4 : at + 4 + length])))
        at += 4 + length
    return b"".join(parts)
