"""Sending answers down a connection, in order and without waiting.

Rule 1: slices of log files go from the file to the socket inside the kernel (`sendfile`), never through Python.
Rule 2: what the socket does not take at once is queued; `queued_bytes` tells how much, and `drained` is called when it
        is all gone. Slices count too: a reader that does not read is slowed, whatever it asked for.
Rule 3: a broken connection is the connection's business: sending to one is no error, its bytes are dropped.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from ottla.io.disk import LocalFile
from ottla.io.ports import Buffer
from ottla.storage.partition_log import Slice

Part = Buffer | Slice
_PARTS_PER_CALL = 64
_SENDFILE_MAX = 1 << 20


class Outlet(Protocol):
    @property
    def queued_bytes(self) -> int: ...

    def send(self, parts: Sequence[Part]) -> None: ...

    def close(self) -> None: ...


class TransportOutlet:
    """Over the transport itself: for simulated networks, and wherever bytes must pass through Python."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    @property
    def queued_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def send(self, parts: Sequence[Part]) -> None:
        self._transport.writelines([part.read() if isinstance(part, Slice) else part for part in parts])

    def close(self) -> None:
        """The transport closes itself."""


class SocketOutlet:
    """Over a duplicate of the socket's descriptor: the event loop lets nobody else watch the one it owns."""

    def __init__(self, transport: asyncio.Transport, drained: Callable[[], None]) -> None:
        self._transport = transport
        self._fd = os.dup(transport.get_extra_info("socket").fileno())
        self._drained = drained
        self._queue: deque[memoryview | Slice] = deque()
        self._waiting = False
        self.queued_bytes = 0

    def send(self, parts: Sequence[Part]) -> None:
        if self._fd < 0:
            return
        for part in parts:
            if len(part):
                self._queue.append(part if isinstance(part, Slice) else memoryview(part))
                self.queued_bytes += len(part)
        if not self._waiting:
            self._flush()

    def close(self) -> None:
        if self._fd >= 0:
            if self._waiting:
                asyncio.get_running_loop().remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1
        self._queue.clear()
        self.queued_bytes = 0

    def _flush(self) -> None:
        try:
            while self._queue:
                head = self._queue[0]
                sent = self._send_slice(head) if isinstance(head, Slice) else self._send_buffers()
                self.queued_bytes -= sent
        except BlockingIOError:
            if not self._waiting:
                self._waiting = True
                asyncio.get_running_loop().add_writer(self._fd, self._flush)
            return
        except OSError:
            self.close()
            self._transport.abort()
            return
        if self._waiting:
            self._waiting = False
            asyncio.get_running_loop().remove_writer(self._fd)
            self._drained()

    def _send_buffers(self) -> int:
        buffers: list[memoryview] = []
        for part in self._queue:
            if isinstance(part, Slice) or len(buffers) == _PARTS_PER_CALL:
                break
            buffers.append(part)
        sent = os.writev(self._fd, buffers)
        left = sent
        for buffer in buffers:
            if left < len(buffer):
                self._queue[0] = buffer[left:]
                break
            left -= len(buffer)
            self._queue.popleft()
        return sent

    def _send_slice(self, part: Slice) -> int:
        wanted = min(part.length, _SENDFILE_MAX)
        file = cast(LocalFile, part.file)
        sent = os.sendfile(self._fd, file.fileno(), part.position, wanted)
        if sent == 0:
            raise OSError(f"{file.path} ends before position {part.position + wanted}")
        if sent == part.length:
            self._queue.popleft()
        else:
            self._queue[0] = Slice(part.file, part.position + sent, part.length - sent, part.first_offset)
        return sent


def outlet_for(transport: asyncio.Transport, drained: Callable[[], None]) -> Outlet:
    if transport.get_extra_info("socket") is None:
        return TransportOutlet(transport)
    return SocketOutlet(transport, drained)
