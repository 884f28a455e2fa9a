"""Compaction: which part of which log, and what becomes of each batch."""

import itertools
from dataclasses import dataclass, field

import pytest
from core_log_samples import NOW, config, data, end, header, log_of
from hypothesis import given
from hypothesis import strategies as st

from ottla.config import Config
from ottla.core.log.cleaning import Cleanable, TransactionTracker, Verdict, cleanable, dirtiest, group_segments, judge
from ottla.core.log.indexes import AbortedTxn
from ottla.core.log.producers import Producers
from ottla.core.log.segment import Segment
from ottla.core.log.state import LogState
from ottla.kernel import BatchHeader, EndTxnMarker


def compacted(end_offset: int = 40, name: str = "t-0", **more: object) -> LogState:
    """Segments at 0, 10, 20 (closed) and 30 (active), 100 bytes each."""
    settings = config(cleanup_policy="compact", **more)
    return log_of([(0, 100), (10, 100), (20, 100), (30, 100)], end_offset, settings, name)


def look(log: LogState, checkpoint: int | None = None, ages: tuple[int, ...] = (0, 0, 0, 0)) -> Cleanable | None:
    def timestamp(segment: Segment) -> int:
        return NOW - ages[segment.base_offset // 10]

    return cleanable(log, checkpoint, NOW, first_timestamp=timestamp, largest_timestamp=timestamp)


def found(log: LogState, checkpoint: int | None = None, ages: tuple[int, ...] = (0, 0, 0, 0)) -> Cleanable:
    cleanable = look(log, checkpoint, ages)
    assert cleanable is not None
    return cleanable


# What may be cleaned.


def test_a_log_that_is_not_compacted_is_left_alone() -> None:
    assert look(log_of([(0, 100), (10, 100)], 20)) is None


def test_closed_segments_are_cleanable_the_active_one_is_not() -> None:
    what = found(compacted())
    assert (what.first_dirty_offset, what.end_offset, what.clean_bytes, what.dirty_bytes) == (0, 30, 0, 300)


def test_cleaning_goes_on_where_the_last_one_ended() -> None:
    what = found(compacted(), 20)
    assert (what.first_dirty_offset, what.end_offset, what.clean_bytes, what.dirty_bytes) == (20, 30, 200, 100)


@pytest.mark.parametrize("checkpoint", [-5, 41, 10**12])
def test_a_checkpoint_outside_of_the_log_counts_for_nothing(checkpoint: int) -> None:
    """The log was truncated or begun anew since."""
    assert found(compacted(), checkpoint).first_dirty_offset == 0


def test_a_checkpoint_before_the_log_start_counts_for_nothing() -> None:
    log = compacted()
    log.advance_log_start(15)
    assert found(log, 10).first_dirty_offset == 15


def test_nothing_above_the_last_stable_offset_is_cleaned() -> None:
    """KAFKA-13194: it may be truncated yet, or be aborted. A segment is cleaned whole or not at all."""
    log = compacted()
    log.producers = Producers("t-0", 40)
    log.producers.replay(data(15, 7, 0, transactional=True), None)
    assert found(log).end_offset == 10


@pytest.mark.parametrize("high_watermark", range(0, 41, 5))
def test_nothing_above_the_watermark_is_cleaned(high_watermark: int) -> None:
    log = LogState(
        "t-0", config(cleanup_policy="compact"), [Segment(b, size=9) for b in (0, 10, 20, 30)], end_offset=40
    )
    log.advance_high_watermark(high_watermark)
    assert found(log).end_offset == min(high_watermark // 10 * 10, 30)


def test_records_younger_than_min_compaction_lag_are_left() -> None:
    log = compacted(min_compaction_lag_ms=100)
    assert found(log, ages=(300, 200, 99, 0)).end_offset == 20
    assert found(log, ages=(300, 99, 200, 0)).end_offset == 10
    assert found(log, ages=(300, 200, 100, 0)).end_offset == 30


# When it is due.


def test_a_log_is_due_when_more_than_the_ratio_is_dirty() -> None:
    assert found(compacted(min_cleanable_dirty_ratio=0.3), 20).is_due
    assert not found(compacted(min_cleanable_dirty_ratio=0.34), 20).is_due
    assert found(compacted(min_cleanable_dirty_ratio=0.3), 20).dirty_ratio == pytest.approx(1 / 3)


def test_max_compaction_lag_makes_it_due_whatever_the_ratio() -> None:
    log = compacted(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=100)
    assert not found(log, 20, ages=(0, 0, 100, 0)).is_due
    assert found(log, 20, ages=(0, 0, 101, 0)).is_due


def test_what_is_clean_does_not_wait() -> None:
    """Only dirty segments count: cleaned records stay old for ever."""
    log = compacted(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=100)
    assert not found(log, 20, ages=(500, 500, 50, 0)).is_due


def test_a_segment_without_timestamps_does_not_wait() -> None:
    log = compacted(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=100)
    assert not found(log, ages=(NOW + 1, NOW + 1, NOW + 1, 0)).is_due


def test_nothing_dirty_is_never_due() -> None:
    log = compacted(min_cleanable_dirty_ratio=0, max_compaction_lag_ms=1)
    assert not found(log, 30, ages=(500, 500, 500, 500)).is_due


def test_the_dirtiest_that_is_due_goes_first() -> None:
    calm = found(compacted(name="calm", min_cleanable_dirty_ratio=1))
    clean, dirty = found(compacted(name="clean"), 10), found(compacted(name="dirty"))
    assert dirtiest([calm, clean, dirty]) is dirty
    assert dirtiest([calm, clean]) is clean
    assert dirtiest([calm]) is None
    assert dirtiest([]) is None


# Grouping.


def bases(groups: list[list[Segment]]) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in groups]


def test_neighbours_that_fit_are_cleaned_into_one() -> None:
    assert bases(group_segments(compacted(segment_bytes=200), 30)) == [[0, 10], [20]]
    assert bases(group_segments(compacted(segment_bytes=300), 30)) == [[0, 10, 20]]
    assert bases(group_segments(compacted(segment_bytes=199), 30)) == [[0], [10], [20]]


def test_only_what_begins_before_the_end_is_grouped() -> None:
    assert bases(group_segments(compacted(), 20)) == [[0, 10]]
    assert bases(group_segments(compacted(), 21)) == [[0, 10, 20]]
    assert group_segments(compacted(), 0) == []


def test_a_group_fits_into_the_indexes_of_one_segment() -> None:
    log = compacted(segment_index_bytes=240)
    for segment in log.segments:
        segment.offset_entries, segment.time_entries = 10, 10
    assert bases(group_segments(log, 30)) == [[0, 10], [20]]


def test_a_group_stays_within_relative_offsets() -> None:
    """The last offset of the group, not its last base, must be reachable from the first base."""
    log = log_of([(0, 1), (10, 1), (2**31, 1)], 2**31 + 9, config(cleanup_policy="compact"))
    assert bases(group_segments(log, 2**31)) == [[0, 10]]
    log = log_of([(0, 1), (10, 1), (2**31 + 1, 1)], 2**31 + 9, config(cleanup_policy="compact"))
    assert bases(group_segments(log, 2**31)) == [[0], [10]]


sizes = st.lists(st.integers(0, 60), min_size=1, max_size=12)


@given(sizes)
def test_groups_are_all_segments_in_order_and_none_is_too_large(each: list[int]) -> None:
    log = log_of([(10 * n, size) for n, size in enumerate(each)], 10 * len(each), config(segment_bytes=100))
    groups = group_segments(log, 10 * len(each))
    assert [segment for group in groups for segment in group] == log.segments
    assert all(sum(segment.size for segment in group) <= 100 for group in groups)
    for group, following in itertools.pairwise(groups):
        assert sum(segment.size for segment in [*group, following[0]]) > 100


# Transactions.

aborted_txn = AbortedTxn(7, 0, 9, 10)


def marker_of(offset: int, *, commit: bool) -> tuple[BatchHeader, EndTxnMarker]:
    return end(offset, 7, commit=commit)


def test_aborted_data_goes_at_once_and_its_marker_stays_with_it() -> None:
    """KAFKA-14055: a reader at an old copy of the data must still find the marker."""
    tracker = TransactionTracker([aborted_txn])
    assert tracker.may_go(data(0, 7, 0, transactional=True), None)
    assert not tracker.may_go(*marker_of(9, commit=False))
    assert tracker.take_still_aborted() == [aborted_txn]
    assert tracker.take_still_aborted() == []


def test_an_abort_marker_without_data_may_go() -> None:
    tracker = TransactionTracker([aborted_txn])
    assert tracker.may_go(*marker_of(9, commit=False))
    assert tracker.take_still_aborted() == []


def test_committed_data_stays_and_so_does_its_marker() -> None:
    tracker = TransactionTracker([])
    assert not tracker.may_go(data(0, 7, 0, transactional=True), None)
    assert not tracker.may_go(*marker_of(1, commit=True))
    assert tracker.may_go(*marker_of(2, commit=True))


def test_data_without_a_transaction_stays() -> None:
    assert not TransactionTracker([aborted_txn]).may_go(data(5, 7, 0), None)


def test_the_next_transaction_of_the_producer_is_its_own() -> None:
    tracker = TransactionTracker([aborted_txn])
    assert tracker.may_go(data(0, 7, 0, transactional=True), None)
    assert not tracker.may_go(*marker_of(9, commit=False))
    assert not tracker.may_go(data(10, 7, 1, transactional=True), None)


def test_a_transaction_that_ended_before_the_walk_does_not_reach_into_it() -> None:
    """The keys of the dirty part alone are noted; what its producer aborted earlier says nothing of them."""
    tracker = TransactionTracker([aborted_txn])
    assert not tracker.may_go(data(10, 7, 1, transactional=True), None)


def test_an_emptied_marker_may_go_and_another_control_record_stays() -> None:
    tracker = TransactionTracker([])
    assert tracker.may_go(header(0, 0, producer_id=7, epoch=0, control=True, transactional=True), None)
    assert not tracker.may_go(header(0, producer_id=7, epoch=0, control=True), None)


@dataclass
class Written:
    """A log of interleaved transactions as plain lists."""

    batches: list[tuple[BatchHeader, EndTxnMarker | None]] = field(default_factory=list)
    aborted: list[AbortedTxn] = field(default_factory=list)
    fate: dict[int, bool] = field(default_factory=dict)
    """Of data batches, by offset: whether their transaction was aborted."""


@st.composite
def logs(draw: st.DrawFn) -> Written:
    written, producers, pending = Written(), Producers("t-0"), dict[int, list[int]]()
    for pid, action in draw(st.lists(st.tuples(st.integers(1, 3), st.sampled_from("ddca")), max_size=25)):
        offset = len(written.batches)
        if action == "d":
            batch, marker = data(offset, pid, offset, transactional=True), None
            pending.setdefault(pid, []).append(offset)
        else:
            batch, marker = end(offset, pid, commit=action == "c")
            written.fate |= dict.fromkeys(pending.pop(pid, []), action == "a")
        completed = producers.replay(batch, marker)
        if completed is not None and completed.aborted:
            written.aborted.append(completed.as_aborted())
        written.batches.append((batch, marker))
    return written


@given(logs(), st.booleans())
def test_exactly_aborted_data_and_markers_without_data_may_go(written: Written, twice: bool) -> None:
    """Followed through any interleaving, also over a log from which the aborted data is gone already."""
    batches = [(b, m) for b, m in written.batches if not (twice and written.fate.get(b.base_offset))]
    tracker, seen = TransactionTracker(written.aborted), dict[int, bool]()
    for batch, marker in batches:
        pid = batch.producer_id
        may_go = tracker.may_go(batch, marker)
        if marker is None:
            assert may_go == written.fate.get(batch.base_offset, False)
            seen[pid] = True
        else:
            assert may_go == (not seen.pop(pid, False))
    kept = [] if twice else written.aborted
    assert tracker.take_still_aborted() == kept


# Verdicts.


def verdict(
    batch: BatchHeader, *, may_go: bool, last_records: dict[int, tuple[int, int]] | None = None, end_offset: int = 99
) -> Verdict:
    return judge(batch, may_go=may_go, last_records=last_records or {}, end_offset=end_offset, now_ms=NOW)


def test_aborted_data_is_discarded_at_once() -> None:
    assert verdict(data(0, 7, 0, transactional=True), may_go=True) == (True, False, False)
    assert verdict(data(0, 7, 0, transactional=True), may_go=False) == (False, False, False)


def test_a_marker_without_data_waits_for_its_horizon() -> None:
    """Set at the first cleaning that found no data; readers that began before have delete.retention.ms."""
    marker, _ = end(5, 7, commit=True)
    assert verdict(marker, may_go=True) == (False, False, True)
    waiting = header(5, producer_id=7, epoch=0, control=True, transactional=True, horizon_ms=NOW + 1)
    assert verdict(waiting, may_go=True) == (False, False, True)
    past = header(5, producer_id=7, epoch=0, control=True, transactional=True, horizon_ms=NOW)
    assert verdict(past, may_go=True) == (True, False, True)
    assert verdict(past, may_go=False) == (False, False, False)


def test_the_last_batch_of_a_known_producer_stays() -> None:
    """It carries the sequence: without it a retry after a restart would be written twice."""
    batch = data(0, 7, 0, 3, transactional=True)
    assert verdict(batch, may_go=True, last_records={7: (2, 0)}).retain_empty
    assert not verdict(batch, may_go=True, last_records={7: (5, 0)}).retain_empty
    assert not verdict(batch, may_go=True, last_records={8: (2, 0)}).retain_empty


def test_without_data_the_marker_of_its_epoch_stays() -> None:
    marker, _ = end(5, 7, commit=True, epoch=3)
    assert verdict(marker, may_go=True, last_records={7: (-1, 3)}).retain_empty
    assert not verdict(marker, may_go=True, last_records={7: (-1, 4)}).retain_empty
    assert not verdict(data(5, 7, 0, epoch=3), may_go=True, last_records={7: (-1, 3)}).retain_empty


def test_the_last_batch_of_the_range_stays() -> None:
    """The end of what was cleaned can still be told after a crash."""
    assert verdict(header(10, 5), may_go=False, end_offset=15).retain_empty
    assert not verdict(header(10, 5), may_go=False, end_offset=16).retain_empty


def test_config_of_a_topic_decides() -> None:
    """A cleanable log reads its own topic's settings, not the broker's."""
    broker = Config.of({"cleanup.policy": "compact"}, broker={"log.cleaner.min.cleanable.ratio": "1"})
    log = log_of([(0, 100), (10, 100)], 20, broker)
    assert not found(log, 0).is_due
    log.config = broker.for_topic({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"})
    assert found(log, 0).is_due
