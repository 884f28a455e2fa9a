"""The mark is set on a real socket, and whatever has come is read soon when no more comes."""

import asyncio
import select
import socket
from contextlib import suppress
from pathlib import Path
from random import Random
from struct import Struct
from typing import Any, cast

import pytest

from ottla.broker.network.tuning.machine import MachineTuning
from ottla.broker.network.tuning.paced_reads import PacedReads, PaceTimer
from ottla.broker.node import Node
from ottla.config import Config
from ottla.core.read_pace import REQUEST_MIN, REQUESTS_MAX, WINDOW_MS
from ottla.io.clock import SystemClock
from ottla.io.disk import LocalDisk
from ottla.io.network import TcpNetwork
from ottla.kernel import Record, build_batch
from ottla.sim.machine.clock import SimClock
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.frame import encode_request

SIZE = Struct(">i")
REQUEST = SIZE.pack(REQUEST_MIN) + bytes(REQUEST_MIN)
MARK = int((REQUESTS_MAX - 0.5) * len(REQUEST))


class Line:
    """A client's socket, and the broker's end of it."""

    def __init__(self, pace_timer: PaceTimer) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.theirs = socket.create_connection(server.getsockname())
            self.ours, _ = server.accept()
        self.ours.setblocking(False)  # A blocking read would wait for the mark.
        self.reads = PacedReads(self.ours, pace_timer, 0)

    @property
    def mark(self) -> int:
        return self.ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    @property
    def is_readable(self) -> bool:
        return bool(select.select([self.ours], [], [], 0)[0])

    def stream(self) -> None:
        """The broker has read a stream of requests, and seen how many the client has open."""
        for now_ms in range(WINDOW_MS + 1):
            for _ in range(8):
                self.reads.took(now_ms, memoryview(REQUEST * (REQUESTS_MAX + 1)))

    def send(self, data: bytes) -> None:
        """Returns when it is there."""
        self.theirs.sendall(data)
        there = 0
        while there < len(data):
            with suppress(BlockingIOError):
                there = len(self.ours.recv(1 << 16, socket.MSG_PEEK))

    async def read(self) -> bytes:
        """As the event loop does: when the kernel says that there is something."""
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        loop.add_reader(self.ours, readable.set_result, None)
        try:
            await readable
        finally:
            loop.remove_reader(self.ours)
        return self.ours.recv(1 << 16)

    def close(self) -> None:
        self.reads.close()
        self.ours.close()
        self.theirs.close()


class SilentTimer:
    """Never looks."""

    def __init__(self) -> None:
        self.marked: set[PacedReads] = set()

    def add(self, reads: PacedReads) -> None:
        self.marked.add(reads)

    def forget(self, reads: PacedReads) -> None:
        self.marked.discard(reads)


@pytest.fixture
def pace_timer() -> SilentTimer:
    return SilentTimer()


@pytest.fixture
def line(pace_timer: SilentTimer) -> Any:
    line = Line(cast(PaceTimer, pace_timer))
    yield line
    line.close()


def test_the_kernel_wakes_nobody_before_the_mark_is_reached(line: Line, pace_timer: SilentTimer) -> None:
    line.stream()
    assert line.mark == MARK
    assert pace_timer.marked == {line.reads}
    line.send(REQUEST * (REQUESTS_MAX - 1))
    assert not line.is_readable
    line.theirs.sendall(REQUEST)
    select.select([line.ours], [], [])
    assert len(line.ours.recv(1 << 16)) >= MARK


def test_an_interruption_takes_the_mark_away_at_once(line: Line, pace_timer: SilentTimer) -> None:
    line.stream()
    line.send(REQUEST)
    assert not line.is_readable
    line.reads.interrupt(WINDOW_MS)
    assert line.mark == 1
    assert not pace_timer.marked
    assert line.is_readable


def test_what_waits_at_the_second_look_is_read_and_a_read_in_between_is_noted(line: Line) -> None:
    line.stream()
    line.send(REQUEST)
    for _ in range(3):
        line.reads.took(WINDOW_MS, memoryview(REQUEST))
        line.reads.look(WINDOW_MS)
        assert line.mark == MARK
    line.reads.look(WINDOW_MS)
    assert line.mark == 1
    assert line.is_readable


def test_a_closed_connection_is_looked_after_no_more(line: Line, pace_timer: SilentTimer) -> None:
    line.stream()
    line.reads.close()
    assert not pace_timer.marked


def test_the_lookout_frees_a_client_that_sends_no_more_and_then_rests() -> None:
    """Otherwise the last requests of a stream would never be answered."""

    async def main() -> None:
        pace_timer = PaceTimer(SystemClock())
        lines = [Line(pace_timer) for _ in range(3)]
        try:
            for _ in range(2):
                for line in lines:
                    line.stream()
                    line.send(REQUEST)
                    assert not line.is_readable
                assert await asyncio.gather(*(line.read() for line in lines)) == [REQUEST] * len(lines)
            assert [line.mark for line in lines] == [1] * len(lines)
            assert not pace_timer
        finally:
            for line in lines:
                line.close()

    asyncio.run(main())


TOPIC = "streamed"
METADATA = b"".join(encode_request(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12, 1, "client"))


def produce_request() -> bytes:
    records = build_batch([Record(0, 1, None, bytes(REQUEST_MIN))])
    topic = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])
    return b"".join(encode_request(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9, 1, "client"))


class Producer:
    """A client that has many requests open, of a node whose clock it moves."""

    def __init__(self, node: Node, clock: SimClock, tuning: MachineTuning) -> None:
        self._node, self._clock, self._tuning = node, clock, tuning
        self._produce = produce_request()

    async def connect(self) -> None:
        (listener,) = self._node.listeners.values()
        self._in, self.out = await asyncio.open_connection("127.0.0.1", listener.port)
        await self.ask(METADATA)

    async def ask(self, *requests: bytes) -> None:
        self.out.write(b"".join(requests))
        for _ in requests:
            (size,) = SIZE.unpack(await self._in.readexactly(SIZE.size))
            await self._in.readexactly(size)

    async def stream(self) -> None:
        """Until the node waits for several requests of it."""
        while not self._tuning.pace_timer:
            await self.ask(*[self._produce] * (REQUESTS_MAX + 1))
            self._clock.advance(1)

    async def end_stream(self) -> None:
        await self.ask(self._produce)


def test_every_request_of_a_stream_is_answered_and_whatever_ends_it_takes_the_mark_away(tmp_path: Path) -> None:
    async def run() -> None:
        clock = SimClock()
        settings: dict[str, Any] = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        config = Config.of(broker=settings)
        tuning = MachineTuning(clock, processors=1)
        node = Node(config, disk=LocalDisk(), clock=clock, random=Random(1), network=TcpNetwork(), tuning=tuning)
        await node.start()
        try:
            producer = Producer(node, clock, tuning)
            await producer.connect()
            await producer.stream()
            await producer.end_stream()
            await producer.stream()
            await producer.ask(METADATA)
            assert not tuning.pace_timer
            await producer.stream()
            producer.out.transport.abort()
            while node.connections:
                await asyncio.sleep(0)
            assert not tuning.pace_timer
        finally:
            await node.stop()

    asyncio.run(run())
