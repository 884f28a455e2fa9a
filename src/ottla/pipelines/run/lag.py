"""How far a pipeline is behind its topics, in records and in time.

Rule 1: in records: the number of offsets between the pipeline's positions and the ends of the partitions.
Rule 2: in time: how long ago the topics ended where the pipeline is now. The ends are sampled from time to time. If the
        pipeline has not reached even the oldest sample, the lag is the time since that sample.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.core.names import TopicPartition

LOOKS_MAX: Final = 1_000

EndOffsets = Mapping[TopicPartition, int]


class Lag(NamedTuple):
    records: int
    ms: int


class LagTracker:
    def __init__(self) -> None:
        self._looks: deque[tuple[int, dict[TopicPartition, int]]] = deque(maxlen=LOOKS_MAX)

    def look(self, now_ms: int, starts: EndOffsets, ends: EndOffsets, consumed: EndOffsets) -> Lag:
        """Sample the ends and return the lag. A partition missing in `consumed` is behind by all it holds."""
        self._looks.append((now_ms, dict(ends)))
        places = {partition: max(consumed.get(partition, 0), starts[partition]) for partition in ends}
        records = sum(max(0, end - places[partition]) for partition, end in ends.items())
        if not records:
            self._forget_until(now_ms)
            return Lag(0, 0)
        reached = [at for at, seen in self._looks if _is_past(places, seen)]
        since = max(reached, default=self._looks[0][0])
        self._forget_until(since)
        return Lag(records, now_ms - since)

    def _forget_until(self, time_ms: int) -> None:
        while len(self._looks) > 1 and self._looks[0][0] < time_ms:
            self._looks.popleft()


def _is_past(places: EndOffsets, seen: EndOffsets) -> bool:
    return all(places.get(partition, 0) >= end for partition, end in seen.items())
