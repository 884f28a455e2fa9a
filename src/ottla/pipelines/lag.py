"""How far a pipeline is behind its topics, in records and in time.

Rule 1: in records: what the topics hold past what was consumed, over all partitions.
Rule 2: in time: how long ago the topics ended where the pipeline is now. That is known from looking at the ends now and
        then; a pipeline that is further behind than the first look is behind at least since then.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.core.names import TopicPartition

LOOKS_MAX: Final = 1_000

Ends = Mapping[TopicPartition, int]


class Lag(NamedTuple):
    records: int
    ms: int


class LagWatch:
    def __init__(self) -> None:
        self._looks: deque[tuple[int, dict[TopicPartition, int]]] = deque(maxlen=LOOKS_MAX)

    def look(self, now_ms: int, starts: Ends, ends: Ends, consumed: Ends) -> Lag:
        """What was consumed may be missing for partitions that are not read yet: they count from their start."""
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


def _is_past(places: Ends, seen: Ends) -> bool:
    return all(places.get(partition, 0) >= end for partition, end in seen.items())
