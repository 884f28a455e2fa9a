"""One segment of a log: the statistics needed to append, to roll and to remove it.

Rule 1: the first batch that begins more than `index.interval.bytes` after the last index entry gets an entry.
Rule 2: the age of a segment counts from the first batch's timestamp, by the timestamps of records; only a segment
        without timestamps uses the clock. So a replayed log rolls where the original did.
Rule 3: a compacted log rolls in time for `max.compaction.lag.ms`: the active segment is never cleaned.
Rule 4: relative offsets fit into 31 bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import NamedTuple

from ottla.config import (
    CLEANUP_POLICY,
    INDEX_INTERVAL_BYTES,
    MAX_COMPACTION_LAG_MS,
    SEGMENT_BYTES,
    SEGMENT_INDEX_BYTES,
    SEGMENT_MS,
    Config,
)
from ottla.config.notation import LONG_MAX
from ottla.core.log.indexes import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY
from ottla.kernel import BatchHeader

NO_TIMESTAMP = -1
_OFFSET_ENTRY_BYTES = OFFSET_ENTRY.size
_TIME_ENTRY_BYTES = TIME_ENTRY.size


class SegmentLimits(NamedTuple):
    """The topic settings that concern segments, looked up once per change and not per batch."""

    bytes_max: int
    open_ms_max: int
    index_bytes_max: int
    index_interval_bytes: int

    @classmethod
    def of(cls, config: Config) -> "SegmentLimits":
        open_ms_max = config[SEGMENT_MS]
        if "compact" in config[CLEANUP_POLICY]:
            open_ms_max = min(open_ms_max, config[MAX_COMPACTION_LAG_MS])
        return cls(config[SEGMENT_BYTES], open_ms_max, config[SEGMENT_INDEX_BYTES], config[INDEX_INTERVAL_BYTES])


class RollReason(StrEnum):
    """Why a new segment is opened."""

    SIZE = "size"
    TIME = "time"
    INDEX_FULL = "index full"
    OFFSET_RANGE = "offset range"
    ASKED = "asked"


class Room(NamedTuple):
    """The limits for batches that are appended to a segment before a new one must be opened."""

    bytes: int
    batches: int
    latest_timestamp: int
    last_offset: int


class IndexEntries(NamedTuple):
    """The index entries of one batch, in relative offsets."""

    offset: tuple[int, int]
    time: tuple[int, int] | None


@dataclass(slots=True, eq=False)
class Segment:
    """One segment."""

    base_offset: int
    created_ms: int = 0
    size: int = 0
    roll_jitter_ms: int = 0
    first_timestamp: int | None = None
    """Of the first batch; None if the segment is empty or the timestamp was not read yet."""
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1
    """The last offset of the batch with the largest timestamp."""
    offset_entries: int = 0
    time_entries: int = 0
    last_timed: int = NO_TIMESTAMP
    """The timestamp of the last time index entry."""
    times_known: bool = True
    """False for a segment opened from disk until the end of its time index was read."""
    _unindexed_bytes: int = field(default=0, repr=False)

    def must_roll(self, header: BatchHeader, limits: SegmentLimits, now_ms: int) -> RollReason | None:
        """Whether a batch, whose header has its final offsets, opens a new segment."""
        if self.size:
            if self.size + header.size > limits.bytes_max:
                return RollReason.SIZE
            if self._waited_ms(header.max_timestamp, now_ms) > limits.open_ms_max - self.roll_jitter_ms:
                return RollReason.TIME
            index_bytes_max = limits.index_bytes_max
            if (self.offset_entries + 1) * _OFFSET_ENTRY_BYTES > index_bytes_max:
                return RollReason.INDEX_FULL
            # Closing the segment adds one more entry to the time index, so it is full one entry earlier.
            if (self.time_entries + 2) * _TIME_ENTRY_BYTES > index_bytes_max:
                return RollReason.INDEX_FULL
        if header.last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return RollReason.OFFSET_RANGE
        return None

    @property
    def rolls_by_clock(self) -> bool:
        """Whether its time counts by the clock, because its first batch has no timestamp."""
        return self.first_timestamp is None or self.first_timestamp < 0

    def room(self, limits: SegmentLimits, now_ms: int) -> Room | None:
        """A lower bound of what can be appended without opening a new segment; None if unknown."""
        bytes_max, open_ms_max, index_bytes_max, _ = limits
        waits_ms_max = open_ms_max - self.roll_jitter_ms
        if not self.size:
            return None
        if self.first_timestamp is not None and not self.rolls_by_clock:
            latest_timestamp = min(self.first_timestamp + waits_ms_max, LONG_MAX)
        elif self._waited_ms(NO_TIMESTAMP, now_ms) <= waits_ms_max:
            latest_timestamp = LONG_MAX
        else:
            return None
        return Room(
            bytes_max - self.size,
            min(
                index_bytes_max // _OFFSET_ENTRY_BYTES - self.offset_entries,
                index_bytes_max // _TIME_ENTRY_BYTES - self.time_entries - 1,
            ),
            latest_timestamp,
            self.base_offset + RELATIVE_OFFSET_MAX,
        )

    def appended(self, headers: Sequence[BatchHeader], index_interval_bytes: int) -> list[IndexEntries]:
        """Record batches written at the end; returns their index entries."""
        position, unindexed_bytes, entries = self.size, self._unindexed_bytes, []
        for header in headers:
            size, timestamp = header.size, header.max_timestamp
            last_offset = header.base_offset + header.last_offset_delta
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
                self.offset_of_max_timestamp = last_offset
            if not position:
                self.first_timestamp = timestamp
            if unindexed_bytes > index_interval_bytes:
                unindexed_bytes = 0
                # Equivalent to calling IndexEntries, in half the time: batches of the usual size have an entry each.
                added = ((last_offset - self.base_offset, position), self.time_entry())
                entries.append(tuple.__new__(IndexEntries, added))
            position += size
            unindexed_bytes += size
        self.size, self._unindexed_bytes = position, unindexed_bytes
        self.offset_entries += len(entries)
        return entries

    def resume(self, first_timestamp: int | None, unindexed_bytes: int) -> None:
        """Continue after a clean shutdown; the arguments are what the indexes do not tell."""
        self.first_timestamp = first_timestamp
        self._unindexed_bytes = unindexed_bytes

    def adopt(self, counted: "Segment") -> None:
        """Copy the statistics of the same segment, recomputed from its log."""
        for figure in fields(self):
            if figure.name not in ("base_offset", "created_ms", "roll_jitter_ms"):
                setattr(self, figure.name, getattr(counted, figure.name))

    def adopt_times(self, read: "Segment") -> None:
        """Copy the timestamps read from the end of the same segment's time index."""
        self.max_timestamp, self.offset_of_max_timestamp = read.max_timestamp, read.offset_of_max_timestamp
        self.last_timed = read.last_timed
        self.times_known = True

    def time_entry(self) -> tuple[int, int] | None:
        """The missing last time index entry: the largest timestamp so far. Closing a segment writes it."""
        if self.max_timestamp <= self.last_timed:
            return None
        self.last_timed = self.max_timestamp
        self.time_entries += 1
        return self.max_timestamp, self.offset_of_max_timestamp - self.base_offset

    def _waited_ms(self, timestamp: int, now_ms: int) -> int:
        if self.first_timestamp is not None and self.first_timestamp >= 0:
            return timestamp - self.first_timestamp
        return now_ms - self.created_ms
