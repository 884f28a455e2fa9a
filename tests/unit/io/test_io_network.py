"""TCP through the event loop: real sockets of the loopback."""

import asyncio
import socket
from typing import cast

import pytest
import uvloop

from ottla.broker.outlet import outlet_for
from ottla.io.network import TcpNetwork, do_not_pace_at_home


class Echo(asyncio.Protocol):
    """Sends back what it gets, and remembers its transport."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class Answering(asyncio.Protocol):
    """Has an outlet, as the broker's connections do."""

    def __init__(self) -> None:
        self.made = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        outlet_for(self.transport, lambda: None).close()
        self.made.set()


class Caller(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.heard.set_result(data)


def test_what_is_sent_arrives_and_neither_side_waits_for_more() -> None:
    """Nagle's algorithm on either side would add up to 40 ms to a small request."""

    async def main() -> None:
        network, accepted, caller = TcpNetwork(), [Echo()], Caller()
        listener = await network.listen("127.0.0.1", 0, lambda: accepted[0])
        await listener.start()
        assert listener.host == "127.0.0.1"
        assert listener.port > 0
        transport = await network.connect(listener.host, listener.port, lambda: caller)
        transport.write(b"hello")
        assert await asyncio.wait_for(caller.heard, 10) == b"hello"
        for side in (transport, accepted[0].transport):
            assert side is not None
            assert side.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        transport.close()
        listener.close()

    asyncio.run(main())


CONGESTION = getattr(socket, "TCP_CONGESTION", None)


def congestion_control_of(connected: socket.socket) -> bytes:
    return connected.getsockopt(socket.IPPROTO_TCP, cast(int, CONGESTION), 16).rstrip(b"\0")


@pytest.mark.skipif(CONGESTION is None, reason="the system has one congestion control for all")
def test_only_what_leaves_the_machine_is_paced() -> None:
    """Two addresses of the loopback stand for two machines."""

    for client, expected in (("127.0.0.1", b"reno"), ("127.0.0.2", None)):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            system_wide = congestion_control_of(listening)
            with socket.create_connection(listening.getsockname(), source_address=(client, 0)):
                accepted, _ = listening.accept()
                with accepted:
                    do_not_pace_at_home(accepted)
                    assert congestion_control_of(accepted) == (expected or system_wide)


@pytest.mark.skipif(CONGESTION is None, reason="the system has one congestion control for all")
def test_neither_side_of_a_connection_at_home_is_paced() -> None:
    async def main() -> None:
        network, accepted = TcpNetwork(), Answering()
        listener = await network.listen("127.0.0.1", 0, lambda: accepted)
        await listener.start()
        transport = await network.connect(listener.host, listener.port, Caller)
        await accepted.made.wait()
        for side in (transport, accepted.transport):
            assert congestion_control_of(side.get_extra_info("socket")) == b"reno"
        transport.close()
        listener.close()

    asyncio.run(main())


def test_connection_that_is_gone_is_not_asked_where_it_leads() -> None:
    with socket.socket() as never_connected:
        do_not_pace_at_home(never_connected)


def test_closed_listener_refuses() -> None:
    async def main() -> None:
        network = TcpNetwork()
        listener = await network.listen("127.0.0.1", 0, Echo)
        await listener.start()
        listener.close()
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await network.connect("127.0.0.1", listener.port, Echo)

    asyncio.run(main())


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_port_is_taken_before_connections_are_accepted(loop_factory) -> None:
    """A node tells its cluster where it is reached before anyone may reach it."""

    async def main() -> None:
        network = TcpNetwork()
        listener = await network.listen("127.0.0.1", 0, Echo)
        with pytest.raises(ConnectionRefusedError):
            await network.connect("127.0.0.1", listener.port, Echo)
        await listener.start()
        (await network.connect("127.0.0.1", listener.port, Echo)).close()
        listener.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
