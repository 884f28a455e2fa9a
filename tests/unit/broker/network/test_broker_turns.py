"""Connections have turns: whatever one has sent, the loop is somebody else's after a while, and the order is kept."""

import asyncio
from collections.abc import Callable
from struct import pack
from types import SimpleNamespace
from typing import Any

import pytest
from broker_connection_samples import Transport, arrive

from ottla.broker.network import dispatch
from ottla.broker.network.backlog import ELEMENTS_PER_TURN, TURN_MS, Backlog
from ottla.broker.network.buffer_pool import BufferPool
from ottla.broker.network.connection import Connection
from ottla.broker.network.connections import Connections
from ottla.broker.network.dispatch import Call
from ottla.broker.network.frame_memory import FrameMemory
from ottla.broker.network.half_frame import POOLED_BYTES
from ottla.broker.network.receive_round import ReceiveRound
from ottla.broker.network.send_round import SendRound
from ottla.broker.network.shortcuts import NO_FAST_PATH
from ottla.broker.network.tuning import NO_TUNING
from ottla.observe.trace import recording
from ottla.wire.api import ApiKey
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.frame import decode_response, encode_request

LIST_OFFSETS_VERSION, HEARTBEAT_VERSION = 7, 4
WIDE = 5_000


class Home:
    """As much of a node as connections need."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.clock: Any = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.connections = Connections(limit=99, limit_per_address=99, overrides={}, idle_ms_max=600_000)
        self.request_bytes_max = 100 << 20
        self.fast_path, self.tuning = NO_FAST_PATH, NO_TUNING
        self.receive_round = ReceiveRound(1 << 20, self.clock, self.fast_path.write)
        self.buffer_pool = BufferPool(POOLED_BYTES)
        self.frame_memory = FrameMemory(-1)
        self.backlog = Backlog(self.clock)
        self.send_round = SendRound()
        self.handled: list[str] = []
        self.heartbeat_ms = 0

    def connect(self) -> tuple[Connection, Transport]:
        node: Any = self
        connection, transport = Connection(node, "PLAINTEXT"), Transport()
        connection.connection_made(transport)
        return connection, transport

    def heartbeat(self, request: HeartbeatRequest, _call: Call) -> HeartbeatResponse:
        """A small request."""
        self.handled.append(request.group_id)
        self.now_ms += self.heartbeat_ms
        return HeartbeatResponse(error_code=0)

    async def list_offsets(self, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
        """A request that may have much to do."""
        name = request.topics[0].name
        self.handled.append(f"{name} begun")
        partitions = await call.budget.each(
            request.topics[0].partitions,
            lambda one: ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=0),
        )
        self.handled.append(f"{name} done")
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=name, partitions=partitions)])


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home()
    handlers = {ApiKey.HEARTBEAT: made.heartbeat, ApiKey.LIST_OFFSETS: made.list_offsets}
    monkeypatch.setattr(dispatch, "handler_of", handlers.__getitem__)
    return made


def heartbeat(group: str, correlation_id: int = 1) -> bytes:
    request = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    return b"".join(encode_request(request, HEARTBEAT_VERSION, correlation_id, "c"))


def list_offsets(name: str, partitions: int, correlation_id: int = 1) -> bytes:
    one = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsTopic(name=name, partitions=[one] * partitions)
    request = ListOffsetsRequest(replica_id=-1, topics=[topic])
    return b"".join(encode_request(request, LIST_OFFSETS_VERSION, correlation_id, "c"))


def pour(connection: Connection, data: bytes, piece: int = 1 << 20) -> None:
    for at in range(0, len(data), piece):
        left = data[at : at + piece]
        while left:
            size = min(len(left), len(connection.get_buffer(-1)))
            arrive(connection, left[:size])
            left = left[size:]


def answers(transport: Transport) -> list[int]:
    """The correlation ids of what was sent."""
    found, at = [], 0
    while at < len(transport.sent):
        size = int.from_bytes(transport.sent[at : at + 4], "big")
        found.append(int.from_bytes(transport.sent[at + 4 : at + 8], "big"))
        at += 4 + size
    return found


async def settle(home: Home, until: Callable[[], bool]) -> int:
    """How many rounds of the loop it takes."""
    rounds = 0
    while not until():
        await asyncio.sleep(0)
        rounds += 1
        assert rounds < 10_000, home.handled[-3:]
    return rounds


# Many small requests.


@pytest.mark.parametrize("piece", [1 << 20, 1_000])
def test_requests_that_have_arrived_together_are_taken_some_at_a_time(home: Home, piece: int) -> None:
    async def work() -> None:
        connection, transport = home.connect()
        sent = b"".join(heartbeat(f"g{number}", number) for number in range(500))
        arrive(connection, sent[:piece])
        assert len(home.handled) <= 64
        for at in range(piece, len(sent), piece):
            await settle(home, lambda: not transport.is_paused)
            pour(connection, sent[at : at + piece])
        await settle(home, lambda: len(answers(transport)) == 500)
        assert home.handled == [f"g{number}" for number in range(500)]
        assert answers(transport) == list(range(500))
        assert not transport.is_paused
        assert connection.held_bytes == home.frame_memory.total == 0

    asyncio.run(work())


def test_connection_that_pipelines_does_not_keep_others_waiting(home: Home) -> None:
    """Fifty of them, and one that asks once: it was served after all of them."""

    async def work() -> None:
        home.heartbeat_ms = 1
        hostile = [home.connect() for _ in range(50)]
        honest, transport = home.connect()
        for connection, _ in hostile:
            arrive(connection, heartbeat("hostile") * 200)
        arrive(honest, heartbeat("honest"))
        began = home.now_ms
        await settle(home, lambda: bool(transport.sent))
        assert home.now_ms - began <= 5 * TURN_MS
        assert home.handled.count("hostile") < 50

    asyncio.run(work())


def test_what_arrives_in_a_crowded_round_is_looked_at_in_the_next(home: Home) -> None:
    async def work() -> None:
        home.heartbeat_ms = 1
        connections = [home.connect() for _ in range(20)]
        for connection, _ in connections:
            arrive(connection, heartbeat("g") * 20)
        assert home.now_ms <= 6 + TURN_MS, "those of one round are bounded together"
        await settle(home, lambda: all(len(answers(transport)) == 20 for _, transport in connections))
        assert len(home.handled) == 400

    asyncio.run(work())


# One large request.


def test_wide_request_gives_way_and_is_answered_as_ever(home: Home) -> None:
    async def work() -> None:
        connection, transport = home.connect()
        pour(connection, list_offsets("t", WIDE, 7))
        rounds = await settle(home, lambda: bool(transport.sent))
        assert rounds >= WIDE // ELEMENTS_PER_TURN
        _, told = decode_response(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, bytes(transport.sent[4:]))
        assert len(told.topics[0].partitions) == WIDE
        assert connection.held_bytes == home.frame_memory.total == 0
        assert not transport.is_paused

    asyncio.run(work())


@pytest.mark.parametrize("piece", [1 << 20, 50_000, 999])
def test_requests_around_a_wide_one_keep_their_order(home: Home, piece: int) -> None:
    """Kafka takes the next request of a connection when the one before is answered."""

    async def work() -> None:
        connection, transport = home.connect()
        sent = heartbeat("before", 1) + list_offsets("t", WIDE, 2) + heartbeat("after", 3) + list_offsets("u", WIDE, 4)
        for at in range(0, len(sent), piece):
            await settle(home, lambda: not transport.is_paused)
            pour(connection, sent[at : at + piece])
        await settle(home, lambda: len(answers(transport)) == 4)
        assert answers(transport) == [1, 2, 3, 4]
        assert home.handled == ["before", "t begun", "t done", "after", "u begun", "u done"]
        assert home.frame_memory.total == 0

    asyncio.run(work())


def test_bytes_of_a_wide_request_are_its_own(home: Home) -> None:
    """It is decoded in turns, and others receive into the shared buffer meanwhile."""

    async def work() -> None:
        wide, transport = home.connect()
        other, _ = home.connect()
        arrive(wide, list_offsets("a name that must not change", WIDE))
        for _ in range(20):
            arrive(other, b"".join([heartbeat("x" * 1_000)] * 10))
            await asyncio.sleep(0)
        await settle(home, lambda: bool(transport.sent))
        assert "a name that must not change done" in home.handled

    asyncio.run(work())


def test_large_frame_with_few_elements_is_taken_at_once(home: Home) -> None:
    """As most are: they hold records, or long strings."""

    async def work() -> None:
        connection, transport = home.connect()
        arrive(connection, heartbeat("x" * 30_000))
        assert home.handled == ["x" * 30_000]
        await settle(home, lambda: bool(transport.sent))

    asyncio.run(work())


def test_request_with_more_than_there_is_memory_for_ends_the_connection(home: Home) -> None:
    async def work() -> None:
        connection, transport = home.connect()
        names = MetadataRequest(topics=[MetadataRequestTopic(name="")] * 1_000_000)
        sent = heartbeat("before", 1) + b"".join(encode_request(names, 9, 2, "c"))
        with recording() as events:
            pour(connection, sent)
            await settle(home, lambda: transport.aborted)
        assert answers(transport) == [1]
        [event] = [event for event in events if event.name == "connection.refused"]
        assert "MetadataRequest v9: topics has more elements than there is memory for" in event.fields["reason"]

    asyncio.run(work())


def test_client_that_hangs_up_ends_what_it_asked_for(home: Home) -> None:
    async def work() -> None:
        connection, _ = home.connect()
        pour(connection, list_offsets("t", 20 * ELEMENTS_PER_TURN))
        await asyncio.sleep(0)
        connection.connection_lost(None)
        await settle(home, lambda: not home.backlog)
        assert "t done" not in home.handled
        assert home.frame_memory.total == 0

    asyncio.run(work())


def test_half_a_frame_behind_a_wide_request_is_kept(home: Home) -> None:
    async def work() -> None:
        connection, transport = home.connect()
        last = heartbeat("last", 2)
        arrive(connection, list_offsets("t", WIDE, 1) + last[:7])
        await settle(home, lambda: bool(transport.sent) and not transport.is_paused)
        arrive(connection, last[7:])
        await settle(home, lambda: len(answers(transport)) == 2)
        assert home.handled[-1] == "last"

    asyncio.run(work())


# Answers that nobody takes.


class Reader:
    """A connection whose client has so many bytes to take."""

    def __init__(self, *queued: int, shared: bytes = b"") -> None:
        self.queued = iter(queued)
        self.unread_bytes = 0
        self.shared = shared
        self.refused: str | None = None

    @property
    def unread_buffers(self) -> list[bytes]:
        return [self.shared] if self.shared else [bytes(self.unread_bytes)]

    def refuse(self, reason: str) -> None:
        self.refused = reason


def looked(readers: list[Reader], looks: int, limit: int) -> list[bool]:
    connections = Connections(limit=9, limit_per_address=9, overrides={}, idle_ms_max=0)
    connections._open = dict.fromkeys(readers, "")  # type: ignore[arg-type]
    for _ in range(looks):
        for reader in readers:
            reader.unread_bytes = next(reader.queued)
        connections.close_unread(limit)
    return [reader.refused is not None for reader in readers]


def test_whoever_takes_no_answers_is_cut_off_when_they_take_too_much_memory() -> None:
    stuck, worse, slow, new = Reader(100, 100, 100), Reader(500, 500, 500), Reader(900, 800, 700), Reader(0, 0, 400)
    assert looked([stuck, worse, slow, new], 3, limit=1_300) == [False, True, False, False]
    assert worse.refused == "500 bytes of responses, and the client reads none of them"


def test_answers_that_share_their_memory_count_once() -> None:
    shared = bytes(500)
    readers = [Reader(500, 500, shared=shared) for _ in range(9)]
    assert looked(readers, 2, limit=1_000) == [False] * 9


def test_nobody_is_cut_off_while_there_is_memory() -> None:
    assert looked([Reader(500, 500), Reader(400, 400)], 2, limit=1_000) == [False, False]


def test_size_of_a_frame_is_read_even_if_it_comes_alone(home: Home) -> None:
    async def work() -> None:
        connection, transport = home.connect()
        frame = heartbeat("g")
        for byte in frame:
            arrive(connection, bytes([byte]))
        await settle(home, lambda: bool(transport.sent))
        arrive(connection, pack(">i", -5))
        assert transport.aborted

    asyncio.run(work())
