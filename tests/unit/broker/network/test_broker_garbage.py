"""What the way of a request leaves behind: nothing that only the garbage collector could find."""

import asyncio
import gc
from pathlib import Path
from random import Random
from typing import Any

from broker_connection_samples import Transport, arrive

from ottla.broker.network.connection import Connection
from ottla.broker.node import Node
from ottla.config import Config
from ottla.io.clock import SystemClock
from ottla.io.disk import LocalDisk
from ottla.io.network import TcpNetwork
from ottla.kernel import Record, build_batch
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.frame import encode_request

TOPIC = "clean"
TIMES = 20


def frame(request: object, version: int) -> bytes:
    return b"".join(encode_request(request, version, 1, "client"))


def fetch_from(offset: int, wait_ms: int) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
    return frame(FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics), 12)


CREATE = frame(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
PRODUCE = frame(
    ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=TOPIC,
                partition_data=[PartitionProduceData(index=0, records=build_batch([Record(0, 1, None, b"value")]))],
            )
        ],
    ),
    9,
)


class Client:
    """A connection to the node, and what it was sent."""

    def __init__(self, node: Node) -> None:
        self.connection, self._transport = Connection(node, "PLAINTEXT"), Transport()
        self.connection.connection_made(self._transport)

    async def ask(self, data: bytes) -> None:
        arrive(self.connection, data)
        await self.answered()

    async def answered(self) -> None:
        """The answer is there, and everything that led to it is over."""
        while self.connection.is_busy or not self._transport.sent:
            await asyncio.sleep(0)
        self._transport.sent.clear()
        await asyncio.sleep(0)


async def garbage_of_requests(node: Node) -> int:
    """How many objects the collector finds after some of each kind of the requests that come most."""
    writer, reader = Client(node), Client(node)
    await writer.ask(CREATE)
    end = 0
    for warm in (True, False):  # What is compiled and imported the first time is no request's.
        gc.collect()
        for _ in range(1 if warm else TIMES):
            await writer.ask(PRODUCE)
            end += 1
            await reader.ask(fetch_from(end - 1, 0))
            arrive(reader.connection, fetch_from(end, 10_000))
            await writer.ask(PRODUCE)
            end += 1
            await reader.answered()
    return gc.collect()


def test_requests_leave_no_cycles(tmp_path: Path) -> None:
    """Cycles stay until the collector has run, and its runs are what the slowest answers wait for."""

    async def run() -> int:
        settings: dict[str, Any] = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        node = Node(
            Config.of(broker=settings), disk=LocalDisk(), clock=SystemClock(), random=Random(1), network=TcpNetwork()
        )
        await node.start()
        gc.disable()
        try:
            return await garbage_of_requests(node)
        finally:
            gc.enable()
            await node.stop()

    assert asyncio.run(run()) == 0
