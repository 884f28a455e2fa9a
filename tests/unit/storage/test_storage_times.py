"""Looking up by time, against a list of all timestamps."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_samples import NOW, Place, in_memory, numbered, on_disk

from ottla.core.log import files


def first_at_least(timestamps: list[int], wanted: int, start: int = 0) -> tuple[int, int] | None:
    found = ((offset, ts) for offset, ts in enumerate(timestamps) if offset >= start and ts >= wanted)
    return next(found, None)


def check_every_time(place: Place, timestamps: list[int], start: int = 0) -> None:
    for wanted in range(min(timestamps) - 1, max(timestamps) + 2):
        found = place.log.find_time(wanted)
        assert (found[:2] if found else None) == first_at_least(timestamps, wanted, start), wanted - NOW
    largest = max(timestamps[start:])
    found = place.log.find_max_timestamp()
    assert found is not None
    assert found[:2] == first_at_least(timestamps, largest, start)


def fill(place: Place, batches: list[tuple[int, int, int]]) -> list[int]:
    """Batches of (delay, records, step); the timestamps of all records."""
    timestamps: list[int] = []
    for delay, count, step in batches:
        place.append(count, timestamp=NOW + delay, step=step)
        timestamps += [NOW + delay + n * step for n in range(count)]
    place.commit()
    return timestamps


def test_every_timestamp_is_found_in_a_log_of_several_segments(tmp_path: Path) -> None:
    place = on_disk(tmp_path, segment_bytes=350)
    timestamps = fill(place, [(3 * number, 1 + number % 3, 1) for number in range(20)])
    assert len(place.bases()) > 3
    check_every_time(place, timestamps)
    place.reopen(clean=True)
    check_every_time(place, timestamps)


steps = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 3), st.integers(-3, 3)), min_size=1, max_size=15)


@settings(max_examples=40)
@given(steps, st.sampled_from([0, 150, 100_000]), st.sampled_from([None, True, False]))
def test_times_out_of_order_are_found_as_in_a_list(
    batches: list[tuple[int, int, int]], interval: int, clean: bool | None
) -> None:
    """Producers' clocks differ: the answer is the first offset, whatever the order and wherever index entries are."""
    place = in_memory(segment_bytes=350, index_interval_bytes=interval)
    timestamps = fill(place, batches)
    if clean is not None:
        place.reopen(clean=clean)
    check_every_time(place, timestamps)


def test_what_was_deleted_is_not_found(tmp_path: Path) -> None:
    place = on_disk(tmp_path, segment_bytes=350)
    timestamps = fill(place, [(3 * number, 1 + number % 3, 1) for number in range(12)])
    for start in (1, 4, 9, 15):
        place.log.delete_records(start)
        check_every_time(place, timestamps, start)


def test_records_without_timestamps_are_found_by_no_time(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    assert place.log.find_max_timestamp() is None
    place.append(timestamp=-1)
    assert place.log.find_time(0) is None
    assert place.log.find_max_timestamp() is None


def test_the_leader_epoch_is_that_of_the_record(tmp_path: Path) -> None:
    """A consumer that seeks by time notices with it when the log was cut and written anew."""
    place = on_disk(tmp_path)
    place.append(leader_epoch=3)
    place.append(leader_epoch=5, timestamp=NOW + 1)
    found = place.log.find_time(NOW + 1)
    assert found is not None
    assert found.leader_epoch == 5


@pytest.mark.parametrize("kind", [files.TIME_INDEX, files.OFFSET_INDEX])
def test_an_index_that_was_lost_is_rebuilt_for_good(tmp_path: Path, kind: str) -> None:
    """Not for one run only: the next clean start must find it whole."""
    place = on_disk(tmp_path, segment_bytes=350)
    timestamps = fill(place, [(3 * number, 1 + number % 3, 1) for number in range(20)])
    place.close()
    for base in place.bases():
        place.disk.remove(place.file(base, kind))
    place.open()
    for _ in range(2):
        place.reopen(clean=True)
        check_every_time(place, timestamps)


def test_a_segment_that_becomes_active_again_keeps_its_times() -> None:
    """Truncation into a gap that compaction left cuts nothing off the segment before it."""
    place = in_memory(index_interval_bytes=4096)
    place.log.append_replicated(numbered(0, timestamp=NOW + 100))
    place.log.append_replicated(numbered(2**32, timestamp=NOW))
    place.reopen(clean=True)
    place.log.truncate(5)
    assert place.bases() == [0]
    assert place.log.state.end_offset == 5
    place.log.append_replicated(numbered(5, timestamp=NOW + 50))
    place.log.append_replicated(numbered(6, timestamp=NOW + 200))
    for wanted, offset in ((NOW + 100, 0), (NOW + 150, 6), (NOW + 200, 6)):
        found = place.log.find_time(wanted)
        assert found is not None
        assert found.offset == offset
    assert place.log.find_time(NOW + 201) is None


def test_truncation_to_a_whole_segment_keeps_its_times() -> None:
    place = in_memory(segment_ms=100)
    place.log.append_replicated(numbered(0, timestamp=NOW + 50))
    place.log.append_replicated(numbered(9, timestamp=NOW + 60))
    place.log.roll()
    place.log.append_replicated(numbered(10, timestamp=NOW + 70))
    place.reopen(clean=True)
    place.log.truncate(10)
    place.log.truncate(5)
    place.log.append_replicated(numbered(5, timestamp=NOW + 55))
    place.log.append_replicated(numbered(6, timestamp=NOW + 149))
    assert place.bases() == [0]
    place.log.append_replicated(numbered(7, timestamp=NOW + 151))
    assert place.bases() == [0, 7]
    found = place.log.find_time(NOW + 100)
    assert found is not None
    assert found.offset == 6
