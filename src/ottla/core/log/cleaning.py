"""Compaction: which part of a log to clean, and which batches to keep.

Rule 1: only closed segments below the last stable offset, and older than `min.compaction.lag.ms`, are cleaned.
Rule 2: a log is cleaned when more than `min.cleanable.dirty.ratio` of it is dirty, or when part of it has waited for
        `max.compaction.lag.ms`. The dirtiest log is first.
Rule 3: records of an aborted transaction are removed at once. Its marker stays until none of its batches is left, and
        for `delete.retention.ms` after that, so that no reader sees the data without the marker (KAFKA-14055).
Rule 4: the last batch of a producer that is still known stays, if necessary without records: it carries the sequence.
Rule 5: the last batch of the range stays too, so that the end of the cleaned range is known.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop
from typing import NamedTuple

from ottla.config import (
    CLEANUP_POLICY,
    MAX_COMPACTION_LAG_MS,
    MIN_CLEANABLE_DIRTY_RATIO,
    MIN_COMPACTION_LAG_MS,
    SEGMENT_BYTES,
    SEGMENT_INDEX_BYTES,
)
from ottla.core.log.indexes import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY, AbortedTxn
from ottla.core.log.segment import Segment
from ottla.core.log.state import LogState
from ottla.kernel import BatchHeader, ControlType, EndTxnMarker

TimestampOf = Callable[[Segment], int]


class Cleanable(NamedTuple):
    """A log that may be cleaned, and how dirty it is."""

    log: LogState
    first_dirty_offset: int
    end_offset: int
    """The base offset of the first segment that may not be cleaned."""
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    @property
    def is_due(self) -> bool:
        if not self.dirty_bytes:
            return False
        return self.overdue or self.dirty_ratio > self.log.config[MIN_CLEANABLE_DIRTY_RATIO]


def cleanable(
    log: LogState, checkpoint: int | None, now_ms: int, *, first_timestamp: TimestampOf, largest_timestamp: TimestampOf
) -> Cleanable | None:
    """The part of `log` that may be cleaned now, or None. `checkpoint` is where the last cleaning ended."""
    if "compact" not in log.config[CLEANUP_POLICY]:
        return None
    first_dirty = log.log_start_offset if checkpoint is None else checkpoint
    if not log.log_start_offset <= first_dirty <= log.end_offset:
        first_dirty = log.log_start_offset
    closed = log.segments[:-1]
    dirty = closed[log.segment_at(first_dirty) :]
    end_offset = min(log.last_stable_offset, log.active.base_offset)
    min_lag_ms = log.config[MIN_COMPACTION_LAG_MS]
    if min_lag_ms > 0:
        too_new = (s.base_offset for s in dirty if largest_timestamp(s) > now_ms - min_lag_ms)
        end_offset = min(end_offset, next(too_new, end_offset))
    # A segment is cleaned whole or not at all.
    end_offset = log.segments[log.segment_at(end_offset)].base_offset
    waiting_since = min((ts for s in dirty if (ts := first_timestamp(s)) > 0), default=now_ms)
    return Cleanable(
        log,
        first_dirty,
        end_offset,
        clean_bytes=sum(s.size for s in log.segments if s.base_offset < first_dirty),
        dirty_bytes=sum(s.size for s in dirty if s.base_offset < end_offset),
        overdue=now_ms - waiting_since > log.config[MAX_COMPACTION_LAG_MS],
    )


def dirtiest(candidates: Iterable[Cleanable]) -> Cleanable | None:
    return max((one for one in candidates if one.is_due), key=lambda one: one.dirty_ratio, default=None)


def group_segments(log: LogState, end_offset: int) -> list[list[Segment]]:
    """Group adjacent segments that together fit into one segment."""
    groups: list[list[Segment]] = []
    candidates = [segment for segment in log.segments if segment.base_offset < end_offset]
    for index, segment in enumerate(candidates):
        if groups and _fits(log, groups[-1], segment, log.end_of(index)):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(log: LogState, group: Sequence[Segment], segment: Segment, segment_end: int) -> bool:
    together = [*group, segment]
    index_bytes_max = log.config[SEGMENT_INDEX_BYTES]
    return (
        sum(s.size for s in together) <= log.config[SEGMENT_BYTES]
        and sum(s.offset_entries for s in together) * OFFSET_ENTRY.size <= index_bytes_max
        and sum(s.time_entries for s in together) * TIME_ENTRY.size <= index_bytes_max
        and segment_end - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
    )


class Verdict(NamedTuple):
    """The instructions to the kernel for compacting one batch (`filter_batch`)."""

    discard: bool
    retain_empty: bool
    marks_empty_txn: bool


@dataclass(slots=True)
class _Aborted:
    """An aborted transaction, and whether any of its data is left."""

    txn: AbortedTxn
    data_seen: bool = False


class TransactionTracker:
    """Follows the transactions through the batches of a log, in order, while it is cleaned."""

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._coming = [(txn.first_offset, number, txn) for number, txn in enumerate(aborted)]
        heapify(self._coming)
        self._aborted: dict[int, _Aborted] = {}
        self._with_data: set[int] = set()
        """Producers with data of a committed transaction seen so far."""
        self._still_aborted: list[AbortedTxn] = []

    def may_go(self, header: BatchHeader, marker: EndTxnMarker | None) -> bool:
        """Whether a batch may be removed: data of an aborted transaction, or a marker without any data left."""
        while self._coming and self._coming[0][0] <= header.last_offset:
            txn = heappop(self._coming)[2]
            # A walk that starts in the middle of the log never meets the marker of a transaction that ended before.
            if txn.last_offset >= header.base_offset:
                self._aborted.setdefault(txn.producer_id, _Aborted(txn))
        if not header.is_control:
            return header.is_transactional and self._is_aborted_data(header.producer_id)
        if not header.count:
            return True
        match marker.control_type if marker is not None else None:
            case ControlType.ABORT:
                ended = self._aborted.pop(header.producer_id, None)
                if ended is None or not ended.data_seen:
                    return True
                self._still_aborted.append(ended.txn)
                return False
            case ControlType.COMMIT:
                had_data = header.producer_id in self._with_data
                self._with_data.discard(header.producer_id)
                return not had_data
            case _:
                return False

    def take_still_aborted(self) -> list[AbortedTxn]:
        """The aborted transactions ended since the last call that still had data: the cleaned segment's index keeps
        them."""
        taken, self._still_aborted = self._still_aborted, []
        return taken

    def _is_aborted_data(self, producer_id: int) -> bool:
        ongoing = self._aborted.get(producer_id)
        if ongoing is None:
            self._with_data.add(producer_id)
            return False
        ongoing.data_seen = True
        return True


def judge(
    header: BatchHeader, *, may_go: bool, last_records: dict[int, tuple[int, int]], end_offset: int, now_ms: int
) -> Verdict:
    """Decide what the kernel does with a batch. `last_records` has the last data of each producer, which must stay.
    `end_offset` is the end of the cleaned range."""
    horizon_ms = header.delete_horizon_ms
    past_horizon = horizon_ms is not None and horizon_ms <= now_ms
    return Verdict(
        discard=may_go and (past_horizon or not header.is_control),
        retain_empty=_is_last_of_producer(header, last_records) or header.next_offset == end_offset,
        marks_empty_txn=may_go and header.is_control,
    )


def _is_last_of_producer(header: BatchHeader, last_records: dict[int, tuple[int, int]]) -> bool:
    last = last_records.get(header.producer_id)
    if last is None:
        return False
    last_data_offset, epoch = last
    if last_data_offset >= 0:
        return header.last_offset == last_data_offset
    return header.is_control and header.producer_epoch == epoch
