"""When a segment is full, and what each batch adds to its indexes."""

from dataclasses import fields

import pytest
from core_log_samples import NOW, config, header
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.log.segment import IndexEntries, RollReason, Segment, SegmentLimits
from ottla.kernel import BatchHeader

FAR = 2**31 - 1


def limits(**settings: object) -> SegmentLimits:
    return SegmentLimits.of(config(**settings))


def filled(size: int = 500, *, first: int = NOW, **figures: int) -> Segment:
    segment = Segment(0, created_ms=NOW, size=size, first_timestamp=first)
    for name, figure in figures.items():
        setattr(segment, name, figure)
    return segment


# Rolling.


@pytest.mark.parametrize(("size", "reason"), [(500, None), (501, RollReason.SIZE)])
def test_a_batch_that_just_fits_does_not_roll(size: int, reason: RollReason | None) -> None:
    assert filled().must_roll(header(5, size=size), limits(segment_bytes=1000), NOW) is reason


@pytest.mark.parametrize(("timestamp", "reason"), [(NOW + 100, None), (NOW + 101, RollReason.TIME)])
def test_time_counts_by_the_records(timestamp: int, reason: RollReason | None) -> None:
    """So a log that is replayed years later rolls where the original did; the clock does not matter."""
    batch = header(5, timestamp=timestamp)
    assert filled().must_roll(batch, limits(segment_ms=100), NOW + 10_000) is reason


@pytest.mark.parametrize(("passed", "reason"), [(100, None), (101, RollReason.TIME)])
def test_without_a_first_timestamp_the_clock_counts(passed: int, reason: RollReason | None) -> None:
    segment = filled(first=-1)
    assert segment.must_roll(header(5, timestamp=-1), limits(segment_ms=100), NOW + passed) is reason


@pytest.mark.parametrize(("timestamp", "reason"), [(NOW + 70, None), (NOW + 71, RollReason.TIME)])
def test_jitter_rolls_earlier(timestamp: int, reason: RollReason | None) -> None:
    segment = filled(roll_jitter_ms=30)
    assert segment.must_roll(header(5, timestamp=timestamp), limits(segment_ms=100), NOW) is reason


def test_a_compacted_log_rolls_in_time_for_max_compaction_lag() -> None:
    """Only closed segments are cleaned: a record in the active one would outwait the limit."""
    batch = header(5, timestamp=NOW + 51)
    lag = {"segment_ms": 100, "max_compaction_lag_ms": 50}
    assert filled().must_roll(batch, limits(cleanup_policy="compact", **lag), NOW) is RollReason.TIME
    assert filled().must_roll(batch, limits(cleanup_policy="compact,delete", **lag), NOW) is RollReason.TIME
    assert filled().must_roll(batch, limits(cleanup_policy="delete", **lag), NOW) is None


@pytest.mark.parametrize(("entries", "reason"), [(9, None), (10, RollReason.INDEX_FULL)])
def test_a_full_offset_index_rolls(entries: int, reason: RollReason | None) -> None:
    segment = filled(offset_entries=entries)
    assert segment.must_roll(header(5), limits(segment_index_bytes=80), NOW) is reason


@pytest.mark.parametrize(("entries", "reason"), [(8, None), (9, RollReason.INDEX_FULL)])
def test_the_time_index_keeps_room_for_the_entry_that_closes_it(entries: int, reason: RollReason | None) -> None:
    assert filled(time_entries=entries).must_roll(header(5), limits(segment_index_bytes=120), NOW) is reason


@pytest.mark.parametrize("size", [0, 500])
@pytest.mark.parametrize(("last_offset", "reason"), [(FAR, None), (FAR + 1, RollReason.OFFSET_RANGE)])
def test_relative_offsets_fit_into_31_bits(size: int, last_offset: int, reason: RollReason | None) -> None:
    """An empty segment too: a follower may skip far ahead."""
    assert filled(size).must_roll(header(last_offset), limits(), NOW) is reason


def test_an_empty_segment_takes_a_batch_of_any_age() -> None:
    """Rolling it would leave an empty segment behind and change nothing."""
    empty = Segment(0, created_ms=NOW)
    tight = limits(segment_ms=1, segment_bytes=200, segment_index_bytes=4)
    assert empty.must_roll(header(5, size=190, timestamp=NOW + 9999), tight, NOW + 9999) is None


def numbered(offset: int, steps: list[tuple[int, int, int]]) -> list[BatchHeader]:
    headers = []
    for size, count, timestamp in steps:
        headers.append(header(offset, count, size=size, timestamp=timestamp))
        offset = headers[-1].next_offset
    return headers


def figures(segment: Segment) -> dict[str, object]:
    return {figure.name: getattr(segment, figure.name) for figure in fields(segment)}


# Indexing.

batches = st.lists(
    st.tuples(st.integers(61, 400), st.integers(1, 5), st.integers(-1, 30) | st.just(-1)), min_size=1, max_size=30
)


@given(batches, st.integers(0, 1000))
def test_entries_are_those_of_the_rule(steps: list[tuple[int, int, int]], interval: int) -> None:
    """Rule 1, and in the time index the largest timestamp so far, once, with the last offset of its first batch."""
    segment, offset, position, unindexed = Segment(100), 100, 0, 0
    largest, at, timed = -1, -1, -1
    for size, count, timestamp in steps:
        batch = header(offset, count, size=size, timestamp=timestamp)
        if timestamp > largest:
            largest, at = timestamp, batch.last_offset
        expected = []
        if unindexed > interval:
            time = (largest, at - 100) if largest > timed else None
            timed = max(timed, largest)
            expected = [IndexEntries((batch.last_offset - 100, position), time)]
            unindexed = 0
        assert segment.appended([batch], interval) == expected
        unindexed += size
        offset, position = batch.next_offset, position + size
    assert segment.size == position
    assert segment.first_timestamp == steps[0][2]
    assert (segment.max_timestamp, segment.offset_of_max_timestamp) == (largest, at)
    assert segment.time_entry() == ((largest, at - 100) if largest > timed else None)
    assert segment.time_entry() is None


@given(batches, st.integers(0, 1000), st.integers(0, 30))
def test_batches_noted_together_are_noted_as_one_by_one(
    steps: list[tuple[int, int, int]], interval: int, before: int
) -> None:
    headers = numbered(100, steps)
    alone, together = Segment(100), Segment(100)
    entries = [added for batch in headers for added in alone.appended([batch], interval)]
    assert together.appended(headers[:before], interval) + together.appended(headers[before:], interval) == entries
    assert figures(together) == figures(alone)


@given(batches, st.integers(61, 2000), st.integers(0, 40), st.integers(0, 60), st.sampled_from([-1, 3]), st.booleans())
def test_what_there_is_room_for_opens_no_new_segment(
    steps: list[tuple[int, int, int]], bytes_max: int, open_ms_max: int, index_bytes_max: int, first: int, late: bool
) -> None:
    """Room is counted for an entry with every batch: there may be more of it, but not less."""
    tight = SegmentLimits(bytes_max, open_ms_max, index_bytes_max, index_interval_bytes=0)
    segment, now_ms = filled(size=100, first=first, time_entries=1), NOW + open_ms_max + late
    room = segment.room(tight, now_ms)
    if room is None:
        assert (late, first) == (True, -1)
        return
    for batch in numbered(0, steps):
        if room.bytes < batch.size or room.batches < 1 or room.latest_timestamp < batch.max_timestamp:
            break
        assert segment.must_roll(batch, tight, now_ms) is None
        room = room._replace(bytes=room.bytes - batch.size, batches=room.batches - 1)
        segment.appended([batch], tight.index_interval_bytes)
    assert Segment(0).room(tight, NOW) is None


def test_figures_counted_anew_are_taken_over_and_the_rest_stays() -> None:
    segment = Segment(5, created_ms=7, roll_jitter_ms=9, size=1, times_known=False)
    counted = Segment(5)
    batch: BatchHeader = header(5, 2)
    counted.appended([batch], 4096)
    segment.adopt(counted)
    assert (segment.base_offset, segment.created_ms, segment.roll_jitter_ms) == (5, 7, 9)
    assert (segment.size, segment.max_timestamp, segment.times_known) == (batch.size, NOW, True)
