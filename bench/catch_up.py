"""Reads a topic from its beginning over one connection, bytes only: measures the broker, not a client."""

import struct

from bench.raw_client import FETCH_VERSION, RawConnection, fetch_frame
from ottla.wire.api import ApiKey
from ottla.wire.frame import decode_response

_SIZE = struct.Struct(">i")
_BATCH = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta of a batch."""
_BEFORE_LENGTH = 12
_ANSWER_BYTES_MAX = 4 << 20


def read_all(port: int, topic: str, records: int) -> int:
    """Fetch partition 0 up to offset `records`; returns the number of fetches."""
    connection = RawConnection(port)
    buffer = memoryview(bytearray(_ANSWER_BYTES_MAX))
    offset = fetches = 0
    while offset < records:
        connection.send(fetch_frame(topic, offset, 500))
        _, response = decode_response(ApiKey.FETCH, FETCH_VERSION, _answer(connection, buffer))
        fetched = response.responses[0].partitions[0]
        following = _after(fetched.records)
        if fetched.error_code or following <= offset:
            raise RuntimeError(f"nothing came for offset {offset}: error {fetched.error_code}")
        offset = following
        fetches += 1
    connection.socket.close()
    return fetches


def _answer(connection: RawConnection, buffer: memoryview) -> memoryview:
    """The next answer, in the buffer."""
    filled, needed = 0, _SIZE.size
    while filled < needed:
        got = connection.socket.recv_into(buffer[filled:])
        if not got:
            raise ConnectionError("the broker closed the connection")
        filled += got
        if filled >= _SIZE.size:
            needed = _SIZE.unpack_from(buffer)[0] + _SIZE.size
    return buffer[_SIZE.size : needed]


def _after(records: memoryview) -> int:
    """The offset after the last whole batch; the last one may be cut."""
    position, end, following = 0, len(records), -1
    while end - position >= _BATCH.size:
        base_offset, length, last_delta = _BATCH.unpack_from(records, position)
        position += _BEFORE_LENGTH + length
        if position > end:
            break
        following = base_offset + last_delta + 1
    return following
