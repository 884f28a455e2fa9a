"""TCP through the event loop: real sockets of the loopback."""

import asyncio
import socket

import pytest
import uvloop

from ottla.io.network import TcpNetwork


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
