"""TCP as the machine has it, through the running event loop."""

import asyncio
import socket
from collections.abc import Callable


class TcpListener:
    """A server of asyncio's; `host` and `port` are where it really listens."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.host, self.port = server.sockets[0].getsockname()[:2]

    def close(self) -> None:
        self._server.close()


class TcpNetwork:
    """Sockets without Nagle's delay: a request is written whole, and nothing is gained by holding it back."""

    async def listen(self, host: str, port: int, accept: Callable[[], asyncio.BaseProtocol]) -> TcpListener:
        loop = asyncio.get_running_loop()
        # asyncio sets TCP_NODELAY on every connection it accepts. The backlog is for clients that all come at once.
        return TcpListener(await loop.create_server(accept, host, port, backlog=1024, reuse_address=True))

    async def connect(self, host: str, port: int, make: Callable[[], asyncio.BaseProtocol]) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(make, host, port)
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return transport
