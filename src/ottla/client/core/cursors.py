"""Where a consumer stands in each of its partitions, and whose turn it is.

Rule 1: a cursor's position is the offset of the next record to be given out; it never goes back by itself.
Rule 2: records of one partition are given out in order; a damaged batch stands in their way until somebody moves past.
Rule 3: turns rotate. A take is shared evenly between the partitions that have records, and the next take starts with
        the partition after the last served: a busy partition cannot starve a quiet one.
Rule 4: no partition is fetched again before most of what it sent was taken; so memory is bounded by their number, and
        the room in an answer goes to those that have nothing.
Rule 5: what was fetched is unpacked as it is taken, some hundred records ahead: a small answer may unpack to millions.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.client.core.errors import ClientError
from ottla.client.core.names import TopicPartition
from ottla.kernel import Damage, Record, RecordReader

FETCH_BELOW: Final = 500


@dataclass(slots=True, eq=False)
class Cursor:
    partition: TopicPartition
    fetch_offset: int
    max_bytes: int
    records: deque[Record] = field(default_factory=deque)
    fetched: RecordReader | None = None  # What comes after `records`, before it was unpacked.
    damage: Damage | None = None  # Comes after `records`.
    error: ClientError | None = None  # Nothing more comes; the same.
    paused: bool = False
    seeking: bool = False  # Its position is being looked up.
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    failing_since_ms: int | None = None
    not_before_ms: int = 0

    @property
    def position(self) -> int:
        return self.records[0].offset if self.records else self.fetch_offset

    @property
    def wants_more(self) -> bool:
        stopped = self.paused or self.seeking or self.damage is not None or self.error is not None
        return not stopped and self.fetched is None and len(self.records) < FETCH_BELOW

    def take_in(self, fetched: RecordReader) -> None:
        """The answer to a fetch from `fetch_offset` on."""
        self.fetched = fetched
        self.failing_since_ms = None
        self._unpack()

    def pop(self, count: int) -> list[Record]:
        """The next records; there are so many."""
        taken = [self.records.popleft() for _ in range(count)]
        self._unpack()
        return taken

    def _unpack(self) -> None:
        """Have records at hand, and know the next fetch before they run out."""
        while self.fetched is not None and len(self.records) <= FETCH_BELOW:
            some = self.fetched.take(FETCH_BELOW)
            self.records.extend(some)
            if len(some) < FETCH_BELOW:
                self.fetch_offset = self.fetched.next_offset
                self.damage = self.fetched.damage
                self.max_bytes = max(self.max_bytes, self.fetched.needed)
                self.fetched = None

    def move_to(self, offset: int) -> None:
        """Forget what was fetched and go on from there."""
        self.records.clear()
        self.fetched = None
        self.fetch_offset = offset
        self.damage = self.error = self.failing_since_ms = None
        self.seeking = False
        self.not_before_ms = 0


class Cursors:
    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, Cursor] = {}
        self._turn: deque[Cursor] = deque()

    def __iter__(self) -> Iterator[Cursor]:
        """In the order of turns."""
        return iter(self._turn)

    def __len__(self) -> int:
        return len(self._turn)

    def get(self, partition: TopicPartition) -> Cursor | None:
        return self._by_partition.get(partition)

    def add(self, cursor: Cursor) -> None:
        self.remove(cursor.partition)
        self._by_partition[cursor.partition] = cursor
        self._turn.append(cursor)

    def remove(self, partition: TopicPartition) -> None:
        gone = self._by_partition.pop(partition, None)
        if gone is not None:
            self._turn.remove(gone)

    def take(self, limit: int) -> list[tuple[Cursor, Record]]:
        """Up to `limit` records, shared fairly."""
        taken: list[tuple[Cursor, Record]] = []
        while len(taken) < limit:
            ready = [cursor for cursor in self._turn if cursor.records and not cursor.paused]
            if not ready:
                break
            share = max(1, (limit - len(taken)) // len(ready))
            for cursor in ready[: limit - len(taken)]:
                count = min(share, len(cursor.records), limit - len(taken))
                taken += [(cursor, record) for record in cursor.pop(count)]
                self._turn.remove(cursor)
                self._turn.append(cursor)
        return taken

    def stopped(self) -> Cursor | None:
        """A cursor whose records are all given out and that cannot go on."""
        for cursor in self._turn:
            if not cursor.records and not cursor.paused and (cursor.damage is not None or cursor.error is not None):
                return cursor
        return None
