"""A client that only sends and receives frames, so that many connections cost the load little.

It sends what a Kafka client would: versions that Kafka 4.3 and Ottla both support, with topic names.
"""

import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ottla.kernel import Record, build_batch
from ottla.wire.api import ApiKey
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.frame import decode_response, encode_request

PRODUCE_VERSION = 9
FETCH_VERSION = 12
_SIZE = struct.Struct(">i")
_FETCH_BYTES = 1 << 20
_TIMEOUT_S = 60.0


class RawConnection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def send(self, frame: bytes) -> None:
        self.socket.sendall(frame)

    def receive(self) -> bytes | None:
        """Read from the socket; returns the response, without its size, if it is complete."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self._received += data
        if len(self._received) < _SIZE.size:
            return None
        size = _SIZE.unpack_from(self._received)[0] + _SIZE.size
        if len(self._received) < size:
            return None
        answer = bytes(self._received[_SIZE.size : size])
        del self._received[:size]
        return answer

    def answer(self) -> bytes:
        while (found := self.receive()) is None:
            pass
        return found

    def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        return self.answer()


class Connections:
    """Many connections; yields those with a response."""

    def __init__(self, port: int, count: int) -> None:
        self.all = [RawConnection(port) for _ in range(count)]
        self._selector = selectors.EpollSelector()
        for connection in self.all:
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    def answered(self, timeout_s: float = _TIMEOUT_S) -> Iterator[tuple[RawConnection, bytes]]:
        """The responses that arrive in time."""
        for key, _ in self._selector.select(timeout_s):
            answer = key.data.receive()
            if answer is not None:
                yield key.data, answer

    def exchange(self, frame: bytes, requests: int) -> float:
        """Send the same request so many times; each connection waits for a response before it sends again.

        Returns the seconds it took."""
        first = self.all[:requests]
        to_send, to_come = requests - len(first), requests
        started = time.perf_counter()
        for connection in first:
            connection.send(frame)
        while to_come:
            for connection, _ in self.answered():
                to_come -= 1
                if to_send:
                    connection.send(frame)
                    to_send -= 1
        return time.perf_counter() - started

    def close(self) -> None:
        self._selector.close()
        for connection in self.all:
            connection.socket.close()


def produce_frame(topic: str, records: int, value: bytes, partition: int = 0) -> bytes:
    return produce_frame_of([topic], [partition], [value] * records, acks=-1)


def produce_frame_of(topics: Sequence[str], partitions: Sequence[int], values: Sequence[bytes], *, acks: int) -> bytes:
    """A batch of these values for each of the partitions of each topic, in one request."""
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch([Record(index, now_ms, None, value) for index, value in enumerate(values)])
    data = [
        TopicProduceData(
            name=topic,
            partition_data=[PartitionProduceData(index=index, records=batch) for index in partitions],
        )
        for topic in topics
    ]
    return frame(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=data), PRODUCE_VERSION)


def fetch_frame(
    topic: str, offset: int, wait_ms: int, max_bytes: int = _FETCH_BYTES, *, committed_only: bool = False
) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    request = FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes, isolation_level=int(committed_only), topics=topics
    )
    return frame(request, FETCH_VERSION)


def produced_at(answer: bytes) -> int:
    """The offset that the records of a request got."""
    response = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, answer)[1].responses[0].partition_responses[0]
    _check(response)
    return int(response.base_offset)


def fetched_up_to(answer: bytes) -> int:
    """The high watermark that came with a fetch."""
    data = decode_response(ApiKey.FETCH, FETCH_VERSION, answer)[1].responses[0].partitions[0]
    _check(data)
    return int(data.high_watermark)


def _check(answered: Any) -> None:
    if answered.error_code:
        raise RuntimeError(f"the broker answered with error {answered.error_code}")


def frame(request: object, version: int) -> bytes:
    """Any request, as it goes over the connection."""
    return b"".join(encode_request(request, version, 1, "bench"))
