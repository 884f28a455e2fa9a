"""The connections of a node: limits, and closing of idle ones.

Rule 1: a connection over the limit of its address or of the node is closed at once, with one line in the log. Of very
        many such lines the first are written, and the others counted.
Rule 2: an incomplete frame must be completed within a minute, and must keep growing while others wait for memory
        (`frame_memory`). A connection without requests is closed after `connections.max.idle.ms`.
Rule 3: unread responses of all connections have a memory limit. Above it, the connections that hold most of it and have
        read nothing since the last check are closed.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.observe.trace import warn

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection

_HALF_FRAME_MS_MAX = 60_000
_STALLED_MS_MAX = 5_000
_UNREAD_BYTES_MAX = 256 << 20
_REFUSALS_TOLD_MAX = 20
"""The number of refusals logged between two checks."""


class Connections:
    def __init__(self, *, limit: int, limit_per_address: int, overrides: dict[str, int], idle_ms_max: int) -> None:
        self._limit = limit
        self._limit_per_address = limit_per_address
        self._overrides = overrides
        self._idle_ms_max = idle_ms_max
        self._open: dict[Connection, str] = {}
        self._by_address: Counter[str] = Counter()
        self._unread: dict[Connection, int] = {}
        """Bytes of unread responses at the last check."""
        self._refused = 0
        """Since the last look at silent connections."""
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator["Connection"]:
        return iter(list(self._open))

    def admit(self, connection: "Connection") -> bool:
        if self._is_closed:
            return False  # Accepted just before the listener was closed; its client finds the next broker.
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
        self.tell_refused(connection, reason)
        return False

    def tell_refused(self, connection: "Connection", reason: str) -> None:
        self._refused += 1
        if self._refused <= _REFUSALS_TOLD_MAX:
            warn("connection.refused", peer=connection.peer, listener=connection.listener, reason=reason)

    def forget(self, connection: "Connection") -> None:
        address = self._open.pop(connection, None)
        if address is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def close_silent(self, now_ms: int, *, others_wait: bool = False) -> None:
        """Close connections that are idle, or have sent part of a frame and then nothing for too long.

        `others_wait`: other connections wait for the memory of incomplete frames, so the limit is shorter."""
        more, self._refused = self._refused - _REFUSALS_TOLD_MAX, 0
        if more > 0:
            warn("connection.more_refused", connections=more, reason="see the lines before")
        for connection in list(self._open):
            since, silent_ms = connection.half_frame_since_ms, now_ms - connection.last_active_ms
            if since is not None and now_ms - since > _HALF_FRAME_MS_MAX:
                connection.refuse(f"an incomplete frame, and nothing received for {now_ms - since} ms")
            elif since is not None and others_wait and silent_ms > _STALLED_MS_MAX:
                connection.refuse(
                    f"an incomplete frame, and nothing received for {silent_ms} ms; others wait for memory"
                )
            elif 0 <= self._idle_ms_max < now_ms - connection.last_active_ms and not connection.is_busy:
                connection.close()

    def close_unread(self, limit: int = _UNREAD_BYTES_MAX) -> None:
        before, self._unread = self._unread, {one: one.unread_bytes for one in self._open if one.unread_bytes}
        if sum(self._unread.values()) <= limit:
            return  # The sum is an upper bound: it includes slices of files, which take no memory.
        # The same buffer may occur in many responses.
        buffers = {id(part): len(part) for one in self._unread for part in one.unread_buffers}
        held, freed = sum(buffers.values()), 0
        for connection in sorted(self._unread, key=self._unread.__getitem__, reverse=True):
            if held - freed <= limit:
                return
            if before.get(connection, 0) and self._unread[connection] >= before[connection]:
                freed += sum(map(len, connection.unread_buffers))
                connection.refuse(f"{self._unread[connection]} bytes of responses, and the client reads none of them")

    def close_all(self) -> None:
        """Close all connections, and accept no more, because the node stops."""
        self._is_closed = True
        for connection in list(self._open):
            connection.close()
