"""Sends responses on a connection, in order and without blocking.

Rule 1: slices of log files go from the file to the socket inside the kernel (`sendfile`), never through Python; for
        small ones a read is cheaper, and lets the whole response leave in one call.
Rule 2: what the socket does not take at once is queued; `queued_bytes` tells how much, and `drained` is called when the
        queue is empty. Slices count too: a reader that does not read is slowed down.
Rule 3: sending on a broken connection is not an error; the bytes are dropped.
Rule 4: a client that reads as fast as the broker sends gets some megabytes at a time, then others have their turn.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from ottla.io.disk import LocalFile
from ottla.io.pacing import pace_what_leaves
from ottla.io.ports import Buffer
from ottla.storage.slices import Slice

Part = Buffer | Slice
_JOINED_MAX = 1 << 16
_READ_MAX = 1 << 13
_SENDFILE_MAX = 1 << 20
_AT_ONCE_MAX = 1 << 22
_MORE_FOLLOWS = getattr(socket, "MSG_MORE", 0)
"""Where it exists, the head of a response is sent in one packet with its first records."""


class AnswerWriter(Protocol):
    @property
    def queued_bytes(self) -> int: ...

    @property
    def queued_buffers(self) -> Sequence[Buffer]:
        """The queued parts that are in memory, without slices of files."""

    def send(self, parts: Sequence[Part]) -> None: ...

    def close(self) -> None: ...


class ClosedWriter:
    """The writer of a closed connection."""

    queued_bytes = 0
    queued_buffers = ()

    def send(self, parts: Sequence[Part]) -> None:
        """Drop the parts."""

    def close(self) -> None:
        """Already closed."""


CLOSED = ClosedWriter()


class TransportWriter:
    """Writes through the transport: for simulated networks, and wherever bytes must pass through Python."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    @property
    def queued_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    @property
    def queued_buffers(self) -> Sequence[Buffer]:
        return [bytes(self.queued_bytes)]

    def send(self, parts: Sequence[Part]) -> None:
        try:
            data = [part.read() if isinstance(part, Slice) else part for part in parts]
        except OSError:
            self._transport.abort()  # The log was deleted or its disk failed: part of a response is useless.
            return
        self._transport.writelines(data)

    def close(self) -> None:
        """Does nothing: the transport is closed by its connection."""


class SocketWriter:
    """Writes to a duplicate of the socket's descriptor, because the event loop does not allow other code to watch the
    descriptor of a transport."""

    def __init__(self, transport: asyncio.Transport, drained: Callable[[], None]) -> None:
        self._transport = transport
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._socket.setblocking(False)
        self._drained = drained
        self._queue: deque[Part] = deque()
        self._waiting = False
        self._closed = False
        self.queued_bytes = 0

    @property
    def queued_buffers(self) -> Sequence[Buffer]:
        return [part for part in self._queue if not isinstance(part, Slice)]

    def send(self, parts: Sequence[Part]) -> None:
        if self._closed:
            return
        if len(parts) == 1 and not self._queue and type(parts[0]) is bytes and self._send_at_once(parts[0]):
            return
        if len(parts) == 3 and not self._queue and self._send_around(parts):
            return
        self._enqueue(parts)

    def _enqueue(self, parts: Sequence[Part]) -> None:
        # A response may have a hundred thousand parts.
        self._queue.extend(filter(len, parts))
        self.queued_bytes += sum(map(len, parts))
        if not self._waiting:
            self._flush()

    def _send_at_once(self, data: bytes) -> bool:
        """Send one buffer without the queue, as for most responses. False, with nothing sent, if that is not
        possible."""
        try:
            sent = self._socket.send(data)
        except OSError:
            return False  # The socket is full or broken: `send` finds out which.
        if sent < len(data):
            self._enqueue([memoryview(data)[sent:]])
        return True

    def _send_around(self, parts: Sequence[Part]) -> bool:
        """Send a large slice between its head and tail without the queue, as for most fetches. False, with nothing
        sent, for anything else. What cannot be sent now is queued."""
        head, part, tail = parts
        if type(head) is not bytes or type(part) is not Slice or not _READ_MAX < part.length <= _SENDFILE_MAX:
            return False
        headed, sent, tailed = 0, 0, 0
        try:
            headed = self._socket.send(head, _MORE_FOLLOWS)
            if headed == len(head):
                file = cast(LocalFile, part.file)
                sent = os.sendfile(self._socket.fileno(), file.fileno(), part.position, part.length)
                if sent == part.length:
                    tailed = self._socket.send(cast(Buffer, tail))
        except OSError:
            pass
        if headed + sent + tailed < len(head) + part.length + len(tail):
            self._enqueue([head[headed:], part.after(sent), memoryview(cast(Buffer, tail))[tailed:]])
        return True

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._waiting:
                asyncio.get_running_loop().remove_writer(self._socket.fileno())
            self._socket.close()
        self._queue.clear()
        self.queued_bytes = 0

    def _flush(self) -> None:
        stop_at = self.queued_bytes - _AT_ONCE_MAX
        try:
            while self._queue:
                if self.queued_bytes <= stop_at:
                    self._wait()
                    return
                head = self._queue[0]
                if isinstance(head, Slice) and head.length > _READ_MAX:
                    self.queued_bytes -= self._send_slice(head)
                else:
                    self.queued_bytes -= self._send_buffers()
        except BlockingIOError:
            self._wait()
            return
        except OSError:
            self.close()
            self._transport.abort()
            return
        if self._waiting:
            self._waiting = False
            asyncio.get_running_loop().remove_writer(self._socket.fileno())
            self._drained()

    def _wait(self) -> None:
        """Continue when the socket is writable, in a later round of the loop."""
        if not self._waiting:
            self._waiting = True
            asyncio.get_running_loop().add_writer(self._socket.fileno(), self._flush)

    def _send_buffers(self) -> int:
        """Send the parts before the next large slice, as far as they fit into one call."""
        queue, buffers, size, flags = self._queue, [], 0, 0
        while queue and size < _JOINED_MAX:
            part = queue[0]
            if isinstance(part, Slice):
                if part.length > _READ_MAX:
                    flags = _MORE_FOLLOWS
                    break
                part = part.read()
            buffers.append(part)
            size += len(part)
            queue.popleft()
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
        sent = 0
        try:
            sent = self._socket.send(data, flags)
        finally:
            if sent < size:
                queue.appendleft(memoryview(data)[sent:])
        return sent

    def _send_slice(self, part: Slice) -> int:
        wanted = min(part.length, _SENDFILE_MAX)
        file = cast(LocalFile, part.file)
        sent = os.sendfile(self._socket.fileno(), file.fileno(), part.position, wanted)
        if sent == 0:
            raise part.cut_short()
        if sent == part.length:
            self._queue.popleft()
        else:
            self._queue[0] = part.after(sent)
        return sent


def writer_for(transport: asyncio.Transport, drained: Callable[[], None]) -> AnswerWriter:
    connected = transport.get_extra_info("socket")
    if connected is None:
        return TransportWriter(transport)
    pace_what_leaves(connected)
    return SocketWriter(transport, drained)
