"""Requests one by one over a plain socket: for what no client's interface offers, and for what no client would do."""

import socket
import time
from collections.abc import Sequence
from struct import Struct
from types import TracebackType
from typing import Any

from ottla.kernel import Record, build_batch
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.produce import PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData
from ottla.wire.errors import Error
from ottla.wire.frame import decode_response, encode_request
from ottla.wire.schema import message_of

_SIZE = Struct(">i")
PRODUCE_VERSION = 9
"""The last that names topics; ids begin with 13."""
TIMEOUT_S = 30


class Wire:
    """One connection. `call` sends a request and waits for its answer; `send` and `receive` do one half."""

    def __init__(self, bootstrap: str, *, receive_buffer: int | None = None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect((host, int(port)))
        self._correlation_id = 0

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.socket.close()

    def call(self, request: object, version: int) -> Any:
        self.send(request, version)
        return self.receive(request, version)

    def send(self, request: object, version: int) -> None:
        self._correlation_id += 1
        self.socket.sendall(b"".join(encode_request(request, version, self._correlation_id, "wire")))

    def receive(self, request: object, version: int) -> Any:
        """The answer to a request of this kind, which must be the next to arrive."""
        api_key = message_of(type(request)).api_key
        assert api_key is not None
        return decode_response(api_key, version, self.receive_frame())[1]

    def receive_frame(self) -> bytes:
        return self._receive_exactly(_SIZE.unpack(self._receive_exactly(_SIZE.size))[0])

    def is_closed_by_peer(self) -> bool:
        """Wait for the other side to hang up; False when it sends something instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _receive_exactly(self, count: int) -> bytes:
        parts, missing = [], count
        while missing:
            part = self.socket.recv(min(missing, 1 << 20))
            if not part:
                raise ConnectionError("the other side hung up")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    # What the tests send most.

    def produce(self, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1) -> PartitionProduceResponse:
        request = produce_request(topic, batch, partition=partition, acks=acks)
        answer: PartitionProduceResponse = self.call(request, PRODUCE_VERSION).responses[0].partition_responses[0]
        return answer

    def new_producer_id(self) -> int:
        """A broker that has just started may not have been given its ids yet, and asks for patience."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while (answer := self.call(request, 4)).error_code == Error.COORDINATOR_LOAD_IN_PROGRESS:
            time.sleep(0.05)
        assert answer.error_code == Error.NONE
        producer_id: int = answer.producer_id
        return producer_id


def produce_request(topic: str, batch: bytes, *, partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=acks, timeout_ms=TIMEOUT_S * 1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def batch_of(
    values: Sequence[bytes],
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    timestamp: int | None = None,
    transactional: bool = False,
) -> bytes:
    """An uncompressed batch of these values."""
    now_ms = timestamp if timestamp is not None else int(time.time() * 1000)
    records = [Record(index, now_ms, None, value) for index, value in enumerate(values)]
    return build_batch(
        records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
