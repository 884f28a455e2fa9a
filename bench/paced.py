"""Produce requests at a fixed rate, regardless of responses: measures the time to each response."""

import time
from collections import deque
from typing import NamedTuple

from bench.raw_client import Connections, RawConnection


class Paced(NamedTuple):
    wall_s: float
    latencies_ms: list[float]
    """Ascending."""


def produce_at(connections: Connections, frame: bytes, per_s: float, seconds: float) -> Paced:
    """One request per connection at a time. If all connections are busy the request waits, and that counts: a stalled
    broker must not slow down the requests that would have met the stall."""
    count = max(int(per_s * seconds), 1)
    free = deque(connections.all)
    due: deque[float] = deque()
    asked_at: dict[RawConnection, float] = {}
    latencies: list[float] = []
    begun = time.perf_counter()
    noticed = 0
    while len(latencies) < count:
        now = time.perf_counter()
        while noticed < count and begun + noticed / per_s <= now:
            due.append(now)
            noticed += 1
        while due and free:
            connection = free.popleft()
            asked_at[connection] = due.popleft()
            connection.send(frame)
        wait_s = max(begun + noticed / per_s - time.perf_counter(), 0) if noticed < count else 5.0
        for connection, _ in connections.answered(wait_s):
            latencies.append((time.perf_counter() - asked_at.pop(connection)) * 1000)
            free.append(connection)
    return Paced(time.perf_counter() - begun, sorted(latencies))
