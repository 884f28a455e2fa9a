"""Which connections are paced: real sockets of the loopback, of which two addresses stand for two machines."""

import asyncio
import socket
from collections.abc import Iterator
from typing import cast

import pytest
import uvloop

from ottla.broker.network.socket_writer import writer_for
from ottla.io import pacing
from ottla.io.network import TcpNetwork

CONGESTION: int = getattr(socket, "TCP_CONGESTION", 0)
pytestmark = pytest.mark.skipif(not CONGESTION, reason="this system has one congestion control for all")


def control_of(connected: socket.socket) -> bytes:
    return connected.getsockopt(socket.IPPROTO_TCP, CONGESTION, 16).rstrip(b"\0")


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[bytes]:
    """The system's congestion control, as if it were one that paces."""
    with socket.socket() as fresh:
        chosen = control_of(fresh)
    monkeypatch.setattr(pacing, "_PACING", chosen)
    pacing.pacing_control.cache_clear()
    yield chosen
    pacing.pacing_control.cache_clear()


class Answering(asyncio.Protocol):
    """Has a socket writer, as the broker's connections do."""

    def __init__(self, accepted: "asyncio.Future[bytes]") -> None:
        self._accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writer_for(cast(asyncio.Transport, transport), lambda: None).close()
        self._accepted.set_result(control_of(transport.get_extra_info("socket")))


def control_of_one_accepted_from(client: str, loop_factory) -> bytes:
    async def main() -> bytes:
        accepted: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        listener = await TcpNetwork().listen("127.0.0.1", 0, lambda: Answering(accepted))
        await listener.start()
        with socket.create_connection((listener.host, listener.port), source_address=(client, 0)):
            control = await asyncio.wait_for(accepted, 10)
        listener.close()
        return control

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_only_what_leaves_the_machine_is_paced(loop_factory, chosen: bytes) -> None:
    assert control_of_one_accepted_from("127.0.0.1", loop_factory) == b"reno"
    assert control_of_one_accepted_from("127.0.0.2", loop_factory) == chosen


@pytest.mark.usefixtures("chosen")
def test_connection_that_is_gone_is_let_be() -> None:
    with socket.socket() as never_connected:
        pacing.pace_what_leaves(never_connected)


def test_where_the_system_does_not_pace_nothing_is_touched(monkeypatch: pytest.MonkeyPatch, chosen: bytes) -> None:
    monkeypatch.setattr(pacing, "_PACING", b"another")
    pacing.pacing_control.cache_clear()
    for client in ("127.0.0.1", "127.0.0.2"):
        assert control_of_one_accepted_from(client, asyncio.new_event_loop) == chosen
