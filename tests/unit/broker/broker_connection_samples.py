"""A connection without a network: bytes arrive as the event loop delivers them, and what is sent is remembered."""

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.broker.network.backlog import Backlog
from ottla.broker.network.buffer_pool import BufferPool
from ottla.broker.network.connection import Connection
from ottla.broker.network.connections import Connections
from ottla.broker.network.frame_memory import FrameMemory
from ottla.broker.network.receive_round import ReceiveRound
from ottla.broker.network.shortcuts import NO_FAST_PATH
from ottla.broker.network.tuning import NO_TUNING

REQUEST_BYTES_MAX = 1000


class Transport(asyncio.Transport):
    """Takes everything, and remembers whether it was ended."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.9", 1234)})
        self.sent = bytearray()
        self.aborted = False
        self.is_paused = False
        self.queued_bytes = 0
        """What the client has not taken, as this transport is told to say."""

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.sent += data

    def get_write_buffer_size(self) -> int:
        return self.queued_bytes

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def abort(self) -> None:
        self.aborted = True


def new_connection() -> tuple[Connection, Transport]:
    clock: Any = SimpleNamespace(monotonic_ms=lambda: 0)
    node: Any = SimpleNamespace(
        clock=clock,
        connections=Connections(limit=9, limit_per_address=9, overrides={}, idle_ms_max=600_000),
        request_bytes_max=REQUEST_BYTES_MAX,
        fast_path=NO_FAST_PATH,
        tuning=NO_TUNING,
        receive_round=ReceiveRound(1 << 16, clock, NO_FAST_PATH.write),
        buffer_pool=BufferPool(1 << 16),
        frame_memory=FrameMemory(-1),
        backlog=Backlog(clock),
    )
    connection, transport = Connection(node, "PLAINTEXT"), Transport()
    connection.connection_made(transport)
    return connection, transport


def arrive(connection: Connection, data: bytes) -> None:
    """As the event loop delivers bytes."""
    buffer = connection.get_buffer(-1)
    buffer[: len(data)] = data
    connection.buffer_updated(len(data))
