"""The connections of a node: how many there may be, and which have been silent too long.

Rule 1: a connection over the limit of its address or of the node is closed at once, with one line in the log.
Rule 2: half a frame must become whole within a minute, and must grow all the time while others wait for memory
        (`frame_memory`); a connection without requests is closed after `connections.max.idle.ms`.
Rule 3: answers that nobody takes may take so much memory in all. When they do, the connections that have most of it and
        have taken nothing since the last look are closed.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.observe.trace import warn

if TYPE_CHECKING:
    from ottla.broker.connection import Connection

_HALF_FRAME_MS_MAX = 60_000
_STALLED_MS_MAX = 5_000
_UNREAD_BYTES_MAX = 256 << 20


class Connections:
    def __init__(self, *, limit: int, limit_per_address: int, overrides: dict[str, int], idle_ms_max: int) -> None:
        self._limit = limit
        self._limit_per_address = limit_per_address
        self._overrides = overrides
        self._idle_ms_max = idle_ms_max
        self._open: dict[Connection, str] = {}
        self._by_address: Counter[str] = Counter()
        self._unread: dict[Connection, int] = {}
        """Bytes of answers at the last look."""

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

    def close_silent(self, now_ms: int, *, others_wait: bool = False) -> None:
        """`others_wait`: for the memory that half frames take."""
        for connection in list(self._open):
            since, silent_ms = connection.half_frame_since_ms, now_ms - connection.last_active_ms
            if since is not None and now_ms - since > _HALF_FRAME_MS_MAX:
                connection.refuse(f"half a frame, and nothing more for {now_ms - since} ms")
            elif since is not None and others_wait and silent_ms > _STALLED_MS_MAX:
                connection.refuse(f"half a frame and nothing for {silent_ms} ms, while others wait for memory")
            elif 0 <= self._idle_ms_max < now_ms - connection.last_active_ms and not connection.is_busy:
                connection.close()

    def close_unread(self, limit: int = _UNREAD_BYTES_MAX) -> None:
        before, self._unread = self._unread, {one: one.unread_bytes for one in self._open if one.unread_bytes}
        if sum(self._unread.values()) <= limit:
            return  # Slices of files count here, and take no memory: so this may be too much, never too little.
        # The same buffer may stand in many answers.
        buffers = {id(part): len(part) for one in self._unread for part in one.unread_buffers}
        held, freed = sum(buffers.values()), 0
        for connection in sorted(self._unread, key=self._unread.__getitem__, reverse=True):
            if held - freed <= limit:
                return
            if before.get(connection, 0) and self._unread[connection] >= before[connection]:
                freed += sum(map(len, connection.unread_buffers))
                connection.refuse(f"{self._unread[connection]} bytes of answers, and none of them is taken")

    def close_all(self) -> None:
        for connection in list(self._open):
            connection.close()
