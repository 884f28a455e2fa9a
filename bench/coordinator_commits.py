"""OffsetCommit requests with a fixed number in flight on every connection, as fast as responses come."""

import selectors
import socket
import struct
import time
from dataclasses import dataclass

from bench.group_requests import commit_frame, find_coordinator, until_committed
from bench.raw_client import RawConnection

WINDOW = 32
"""Requests in flight per connection."""
_SIZE = struct.Struct(">i")
_RECEIVE_BYTES = 1 << 18
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Commits:
    requests: int
    connections: int
    partitions: int
    """In every request."""

    @property
    def name(self) -> str:
        of = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        by = "1 connection" if self.connections == 1 else f"{self.connections} connections"
        return f"commit {of}, {by}"

    def run(self, port: int, topic: str) -> float:
        """Seconds from the first request to the last response. Every response must equal the one without an error."""
        senders = [_Sender(port, f"commits-{number}", topic, self.partitions) for number in range(self.connections)]
        with selectors.DefaultSelector() as selector:
            for sender in senders:
                selector.register(sender.socket, selectors.EVENT_READ, sender)
            to_send = to_come = self.requests
            started = time.perf_counter()
            for sender in senders:
                to_send -= sender.send(min(WINDOW, to_send))
            while to_come:
                ready = selector.select(_TIMEOUT_S)
                if not ready:
                    raise RuntimeError(f"{to_come} commits were not answered")
                for key, _ in ready:
                    answered = key.data.answered()
                    to_come -= answered
                    to_send -= key.data.send(min(answered, to_send))
            took = time.perf_counter() - started
        for sender in senders:
            sender.socket.close()
        return took


class _Sender:
    """Sends the same commit of its own group repeatedly, so that all responses have the same bytes."""

    def __init__(self, port: int, group: str, topic: str, partitions: int) -> None:
        connection = RawConnection(port)
        find_coordinator(connection, group)
        self.socket: socket.socket = connection.socket
        self._request = commit_frame(group, topic, partitions)
        answer = until_committed(connection, self._request)
        self._answer = _SIZE.pack(len(answer)) + answer
        self._received = b""

    def send(self, count: int) -> int:
        if count:
            self.socket.sendall(self._request * count)
        return count

    def answered(self) -> int:
        """The number of responses."""
        received = self.socket.recv(_RECEIVE_BYTES)
        if not received:
            raise ConnectionError("the broker closed the connection before it had answered all commits")
        self._received += received
        count, left = divmod(len(self._received), len(self._answer))
        if self._received != self._answer * count + self._answer[:left]:
            raise RuntimeError("a commit was answered with an error")
        self._received = self._received[len(self._received) - left :]
        return count
