"""The consumer's position in each of its partitions, and the order in which partitions are served.

Rule 1: a cursor's position is the offset of the next record to return; it never decreases by itself.
Rule 2: the records of a partition are returned in order; a damaged batch blocks them until the position is moved past
        it.
Rule 3: partitions take turns. A take is shared evenly between the partitions that have records, and the next take
        starts after the last partition served: a busy partition cannot starve a quiet one.
Rule 4: a partition is fetched again only after most of its records were taken, so memory is bounded by the number of
        partitions, and the space in a response goes to partitions without records.
Rule 5: fetched batches are unpacked as they are taken, some hundred records ahead: a few kilobytes may unpack to
        millions of records, which as objects would take gigabytes.
Rule 6: batches before the position pass through the filter of aborted transactions too: a consumer that continues in
        the middle of a response would otherwise miss a marker, and drop what its producer committed next.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.client.core.names import TopicPartition
from ottla.kernel import Damage, Record, RecordReader
from ottla.rpc.errors import ClientError

FETCH_BELOW: Final = 500


@dataclass(slots=True, eq=False)
class Cursor:
    """The position in one partition."""

    partition: TopicPartition
    fetch_offset: int
    max_bytes: int
    records: deque[Record] = field(default_factory=deque)
    fetched: RecordReader | None = None  # What comes after `records`, still packed.
    damage: Damage | None = None  # Comes after `records`.
    error: ClientError | None = None  # Comes after `records`, too; nothing follows it.
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
        """Add the response of a fetch from `fetch_offset` on."""
        self.fetched = fetched
        self.failing_since_ms = None
        self._unpack()

    def pop(self, count: int) -> list[Record]:
        """Remove and return the next `count` records, which must be unpacked already."""
        taken = [self.records.popleft() for _ in range(count)]
        self._unpack()
        return taken

    def _unpack(self) -> None:
        """Unpack some records ahead, and compute the next fetch offset before they run out."""
        while self.fetched is not None and len(self.records) <= FETCH_BELOW:
            some = self.fetched.take(FETCH_BELOW)
            self.records.extend(some)
            if len(some) < FETCH_BELOW:
                self.fetch_offset = self.fetched.next_offset
                self.damage = self.fetched.damage
                self.max_bytes = max(self.max_bytes, self.fetched.needed)
                self.fetched = None

    def move_to(self, offset: int) -> None:
        """Drop the fetched records and continue at `offset`."""
        self.records.clear()
        self.fetched = None
        self.fetch_offset = offset
        self.damage = self.error = self.failing_since_ms = None
        self.seeking = False
        self.not_before_ms = 0


class Cursors:
    """The cursors of a consumer."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, Cursor] = {}
        self._turn: deque[Cursor] = deque()

    def __iter__(self) -> Iterator[Cursor]:
        """Iterate over the cursors in the order in which they are served."""
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
        """Up to `limit` records, shared evenly."""
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
        """A cursor that has returned all its records and cannot continue."""
        for cursor in self._turn:
            if not cursor.records and not cursor.paused and (cursor.damage is not None or cursor.error is not None):
                return cursor
        return None
