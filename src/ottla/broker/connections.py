"""The connections of a node: how many there may be, and which have been silent too long.

Rule 1: a connection over the limit of its address or of the node is closed at once, with one line in the log.
Rule 2: half a frame must become whole within a minute; a connection without requests is closed after
        `connections.max.idle.ms`.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.observe.trace import warn

if TYPE_CHECKING:
    from ottla.broker.connection import Connection

_HALF_FRAME_MS_MAX = 60_000


class Connections:
    def __init__(self, *, limit: int, limit_per_address: int, overrides: dict[str, int], idle_ms_max: int) -> None:
        self._limit = limit
        self._limit_per_address = limit_per_address
        self._overrides = overrides
        self._idle_ms_max = idle_ms_max
        self._open: dict[Connection, str] = {}
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator["Connection"]:
        return iter(list(self._open))

    def admit(self, connection: "Connection") -> bool:
        address = connection.peer.rpartition(":")[0]
        limit_here = self._overrides.get(address, self._limit_per_address)
        if len(self._open) >= self._limit:
            reason = f"max.connections={self._limit} is reached"
        elif self._by_address[address] >= limit_here:
            reason = f"max.connections.per.ip={limit_here} is reached for {address}"
        else:
            self._open[connection] = address
            self._by_address[address] += 1
            return True
        warn("connection.refused", peer=connection.peer, listener=connection.listener, reason=reason)
        return False

    def forget(self, connection: "Connection") -> None:
        address = self._open.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def close_silent(self, now_ms: int) -> None:
        for connection in list(self._open):
            since = connection.half_frame_since_ms
            if since is not None and now_ms - since > _HALF_FRAME_MS_MAX:
                connection.refuse(f"half a frame, and nothing more for {now_ms - since} ms")
            elif 0 <= self._idle_ms_max < now_ms - connection.last_active_ms and not connection.is_busy:
                connection.close()

    def close_all(self) -> None:
        for connection in list(self._open):
            connection.close()
