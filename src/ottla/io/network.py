"""The `Network` port on this machine: TCP connections of the running event loop."""

import asyncio
import errno
import socket
from collections.abc import Callable

from ottla.io.pacing import pace_nobody


class ListenFailed(Exception):
    """An address cannot be listened on; the text says why and what to do."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        address = f"{host or '*'}:{port}"
        match error.errno:
            case errno.EADDRINUSE:
                text = f"{address} is taken by another process. Stop that one, or listen on another port"
            case errno.EADDRNOTAVAIL:
                text = f"{address} cannot be listened on: {host} is no address of this machine"
            case errno.EACCES | errno.EPERM:
                text = f"{address} cannot be listened on without more rights. Choose a port from 1024 on"
            case _:
                text = f"{address} cannot be listened on: {error}"
        super().__init__(text)


class TcpListener:
    """An asyncio server; `host` and `port` are the actual address."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.host, self.port = server.sockets[0].getsockname()[:2]

    async def start(self) -> None:
        await self._server.start_serving()

    def close(self) -> None:
        self._server.close()


class TcpNetwork:
    """TCP without Nagle's delay: a request is written whole, so delaying it gains nothing."""

    def __init__(self, *, backlog: int = 1024, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1) -> None:
        """Buffer sizes are for accepted connections; -1 leaves them to the system, which adapts them to the load."""
        self._backlog = backlog
        self._buffers = ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))

    async def listen(self, host: str, port: int, accept: Callable[[], asyncio.BaseProtocol]) -> TcpListener:
        loop = asyncio.get_running_loop()
        # asyncio sets TCP_NODELAY on every connection it accepts.
        try:
            server = await loop.create_server(
                accept, host, port, backlog=self._backlog, reuse_address=True, start_serving=False
            )
        except OSError as error:
            raise ListenFailed(host, port, error) from error
        for listening in server.sockets:
            pace_nobody(listening)  # An accepted connection is paced later if necessary (`pace_what_leaves`).
            for option, size in self._buffers:
                if size >= 0:
                    listening.setsockopt(socket.SOL_SOCKET, option, size)  # Accepted connections inherit them.
        return TcpListener(server)

    async def connect(self, host: str, port: int, make: Callable[[], asyncio.BaseProtocol]) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(make, host, port)
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return transport
