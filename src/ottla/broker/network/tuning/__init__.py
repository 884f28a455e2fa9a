"""Controls how the event loop sleeps and when connections are read. It affects speed, not the contents of responses.

Connections use the interface `Tuning` only. `NO_TUNING` does nothing: simulated nodes run with it, because their
network has no sockets and their loop never sleeps.
"""

from socket import socket
from typing import Protocol


class Pace(Protocol):
    """The pacing of one connection whose requests stream in."""

    def took(self, now_ms: int, data: memoryview, /) -> None:
        """Called when the connection was read. `data` holds whole requests, and possibly part of another."""

    def interrupt(self, now_ms: int, /) -> None:
        """Called when a request of another kind came, or when the connection is not read for a while."""

    def close(self) -> None:
        """Called before the socket's descriptor is reused."""


class Tuning(Protocol):
    """The interface by which the connections of a node report their reads and responses."""

    def read(self) -> None:
        """Called when a connection was read."""

    def answered(self, now_ms: int, /) -> None:
        """Called when the only request of the last read was answered, and the previous response was on the same
        connection."""

    def pace(self, connected: socket | None, now_ms: int, /) -> Pace | None:
        """A Pace for a connection whose client sends without waiting for responses; None if it is not to be paced."""


class _NoTuning:
    def read(self) -> None:
        """Does nothing."""

    def answered(self, now_ms: int, /) -> None:
        """Does nothing."""

    def pace(self, _connected: socket | None, _now_ms: int, /) -> Pace | None:
        return None


NO_TUNING: Tuning = _NoTuning()
