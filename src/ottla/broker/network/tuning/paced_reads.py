"""Applies the decisions of `core/read_pace` to sockets.

The mark is the socket option `SO_RCVLOWAT`: the event loop is not notified before so many bytes wait, or the receive
buffer is full. Lowering it notifies the loop of bytes that wait already.
"""

import asyncio
import socket
from fcntl import ioctl
from struct import Struct
from termios import FIONREAD

from ottla.core.read_pace import ReadPace
from ottla.io.ports import Clock

_LOOK_S = 0.001
_INT = Struct("i")


class PacedReads:
    """The pacing of one connection."""

    def __init__(self, sock: socket.socket, pace_timer: "PaceTimer", now_ms: int) -> None:
        self._socket = sock
        self._pace_timer = pace_timer
        self._pace = ReadPace(now_ms)
        self._mark = 1
        self._was_read = False
        """Whether it was read since the last check."""

    def took(self, now_ms: int, data: memoryview) -> None:
        """Adapt the mark after a read. `data` holds whole requests, and possibly part of another."""
        self._was_read = True
        mark = self._pace.took(now_ms, data)
        if mark != self._mark:
            self._set(mark)

    def look(self, now_ms: int) -> None:
        if self._was_read:
            self._was_read = False
        else:
            (waiting,) = _INT.unpack(ioctl(self._socket.fileno(), FIONREAD, bytes(_INT.size)))
            self._set(self._pace.unread(now_ms, waiting))

    def interrupt(self, now_ms: int) -> None:
        """Adapt the mark, because a request of another kind came, or the connection is not read for a while."""
        self._set(self._pace.interrupted(now_ms))

    def _set(self, mark: int) -> None:
        if mark == self._mark:
            return
        self._mark = mark
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)
        if mark > 1:
            self._pace_timer.add(self)
        else:
            self._pace_timer.forget(self)

    def close(self) -> None:
        """Stop the timer for this connection. Called before the socket's descriptor is reused."""
        self._pace_timer.forget(self)


class PaceTimer:
    """Checks all connections of a node that have a mark, by one timer that runs only while there are any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marked: dict[PacedReads, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, reads: PacedReads) -> None:
        self._marked[reads] = None
        if self._timer is None:
            self._look_later()

    def forget(self, reads: PacedReads) -> None:
        self._marked.pop(reads, None)

    def __len__(self) -> int:
        return len(self._marked)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for reads in list(self._marked):
            reads.look(now_ms)
        if self._marked:
            self._look_later()
