"""Requests of several clients, cut and mixed as a network may do it: each is written once and answered in its turn."""

import asyncio
from collections import deque
from struct import Struct
from typing import Any

from broker_connection_samples import Transport, arrive
from broker_produce_samples import frame_of
from hypothesis import given, settings
from hypothesis import strategies as st
from lane_home import LaneHome

from ottla import kernel
from ottla.broker.fastpath.plug import LaneFastPath
from ottla.broker.network.backlog import Backlog
from ottla.broker.network.buffer_pool import BufferPool
from ottla.broker.network.connection import SHARED_BUFFER_BYTES, Connection
from ottla.broker.network.connections import Connections
from ottla.broker.network.frame_memory import FrameMemory
from ottla.broker.network.receive_round import ReceiveRound
from ottla.broker.network.send_round import SendRound
from ottla.broker.network.tuning import NO_TUNING
from ottla.kernel import Record
from ottla.wire.api import ApiKey
from ottla.wire.errors import Error
from ottla.wire.frame import decode_response, split_frames

SIZE = Struct(">i")
CLIENTS, VERSION = 3, 13


class Home(LaneHome):
    """As much of a node as connections of producers need."""

    def __init__(self) -> None:
        super().__init__({})
        self.connections = Connections(limit=9, limit_per_address=9, overrides={}, idle_ms_max=600_000)
        self.request_bytes_max = SHARED_BUFFER_BYTES
        node: Any = self
        self.fast_path = LaneFastPath(node)
        self.receive_round = ReceiveRound(1 << 12, self.clock, self.fast_path.write)
        self.buffer_pool = BufferPool(1 << 12)
        self.frame_memory = FrameMemory(-1)
        self.backlog = Backlog(self.clock)
        self.send_round = SendRound()
        self.tuning = NO_TUNING

    def connect(self) -> tuple[Connection, Transport]:
        node: Any = self
        connection, transport = Connection(node, "PLAINTEXT"), Transport()
        connection.connection_made(transport)
        return connection, transport


def batch(records: int, value: int, producer_id: int = -1, base_sequence: int = -1) -> bytes:
    numbered = [Record(n, 1_000, None, b"%d" % value) for n in range(records)]
    epoch = -1 if producer_id < 0 else 0
    return bytes(
        kernel.build_batch(numbered, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence)
    )


def stream(client: int, sizes: list[int], has_producer: bool) -> bytes:
    """What a client sends: batches of so many records, the first ones to make its requests known."""
    sent, sequence = b"", 0
    for number, records in enumerate([1, 1, 1, *sizes]):
        producer = {"producer_id": client, "base_sequence": sequence} if has_producer else {}
        frame = frame_of(batch(records, 100 * client + number, **producer), correlation_id=number)
        sent += SIZE.pack(len(frame)) + frame
        sequence += records
    return sent


clients = st.lists(
    st.tuples(st.lists(st.integers(1, 30), max_size=8), st.booleans()), min_size=CLIENTS, max_size=CLIENTS
)
moves = st.lists(st.tuples(st.integers(0, CLIENTS - 1), st.integers(1, 1_500), st.booleans()), max_size=40)


@settings(max_examples=200, deadline=None)
@given(clients, moves)
def test_every_request_is_written_once_and_answered_in_its_turn(
    sent: list[tuple[list[int], bool]], script: list[tuple[int, int, bool]]
) -> None:
    home = Home()
    transports = asyncio.run(play(home, [stream(who, *one) for who, one in enumerate(sent)], script))
    written = []
    for transport, (sizes, _) in zip(transports, sent, strict=True):
        assert not transport.aborted
        frames, end = split_frames(transport.sent, 1 << 20)
        assert end == len(transport.sent)
        answers = [decode_response(ApiKey.PRODUCE, VERSION, frame) for frame in frames]
        assert [number for number, _ in answers] == list(range(3 + len(sizes)))
        told = [answer.responses[0].partition_responses[0] for _, answer in answers]
        assert {one.error_code for one in told} == {Error.NONE}
        offsets = [one.base_offset for one in told]
        assert offsets == sorted(offsets)
        written += zip(offsets, [1, 1, 1, *sizes], strict=True)
    end_offset = 0
    for base_offset, records in sorted(written):
        assert base_offset == end_offset
        end_offset += records
    assert home.led.log.state.end_offset == home.led.high_watermark == end_offset


async def play(home: Home, streams: list[bytes], script: list[tuple[int, int, bool]]) -> list[Transport]:
    """Deliver the streams in pieces: whose comes next, how large it is, and whether a round ends with it."""
    connected = [home.connect() for _ in streams]
    left = [memoryview(bytes_sent) for bytes_sent in streams]
    upcoming = deque(script)
    while any(left):
        who, size, ends = (
            upcoming.popleft() if upcoming else (next(n for n, rest in enumerate(left) if rest), 999, True)
        )
        connection, _ = connected[who]
        size = min(size, len(left[who]), len(connection.get_buffer(-1)))
        if size:
            arrive(connection, bytes(left[who][:size]))
            left[who] = left[who][size:]
        home.receive_round.free[:] = bytes(len(home.receive_round.free))
        if ends:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return [transport for _, transport in connected]
