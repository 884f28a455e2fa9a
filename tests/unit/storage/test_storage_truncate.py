"""Taking records away: from the end, from the start, by retention, all of them."""

from pathlib import Path

import pytest
from storage_samples import KEY, NOW, Place, in_memory, numbered, on_disk

from ottla.core.log import files
from ottla.observe.trace import recording
from ottla.wire.errors import Error, Refused

SIZES = (1, 2, 3, 1, 2, 3, 1, 2, 3)
STARTS = (0, 1, 3, 6, 7, 9, 12, 13, 15, 18)


def fill(place: Place) -> Place:
    """Batches that begin at STARTS, in epochs of three, of two producers, over several segments."""
    fill_up_to(place, STARTS[-1])
    place.commit()
    return place


def fill_up_to(place: Place, end: int) -> None:
    for number, size in enumerate(SIZES):
        if STARTS[number] >= end:
            return
        sent = sum(SIZES[k] for k in range(number) if k % 2 == number % 2)
        place.append(size, producer_id=number % 2, sequence=sent, leader_epoch=number // 3, timestamp=NOW + number)


@pytest.mark.parametrize("clean", [None, True, False])
def test_truncation_at_every_offset_leaves_a_log_that_goes_on(clean: bool | None) -> None:
    """A batch that holds the offset goes whole; the state is that of a log that never had more."""
    for offset in range(20):
        place = fill(in_memory(segment_bytes=300))
        fresh = in_memory(segment_bytes=300)
        if clean is not None:
            place.checkpoint()
            place.reopen(clean=clean)
        place.log.truncate(offset)
        end = max(start for start in STARTS if start <= offset)
        state = place.log.state
        assert state.end_offset == end
        assert (state.high_watermark, state.recovery_point <= end) == (min(18, end), True)
        assert place.offsets() == list(range(end))
        fill_up_to(fresh, end)
        assert state.producers.last_records() == fresh.log.state.producers.last_records()
        assert state.epochs.entries == fresh.log.state.epochs.entries
        assert place.append(2, leader_epoch=9).first_offset == end
        assert place.offsets() == list(range(end + 2))
        before = state.producers.last_records()
        place.checkpoint()
        place.reopen(clean=False)
        assert place.offsets() == list(range(end + 2))
        assert place.log.state.producers.last_records() == before
        found = place.log.find_max_timestamp()
        assert found is not None


def test_truncation_past_the_end_does_nothing(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path))
    with recording() as events:
        place.log.truncate(18)
        place.log.truncate(99)
    assert events == []
    assert place.log.state.end_offset == 18


def test_truncation_takes_aborted_transactions_back(tmp_path: Path) -> None:
    """The marker is gone: the transaction is open again, and its records are undecided."""
    place = on_disk(tmp_path)
    place.append(producer_id=7, sequence=0, transactional=True)
    place.end_txn(7, commit=False)
    place.append(producer_id=7, sequence=1, transactional=True)
    place.end_txn(7, commit=False)
    place.commit()
    place.log.truncate(3)
    place.append()
    place.commit()
    assert [txn.first_offset for txn in place.log.aborted_transactions(0, 4)] == [0]
    assert place.log.state.last_stable_offset == 2


def test_a_flush_under_way_does_not_vouch_for_what_was_written_after_a_truncation(tmp_path: Path) -> None:
    """Below the recovery point everything is synced: what replaced the synced bytes is not."""
    place = on_disk(tmp_path)
    place.append(10)
    place.log.truncate(5)
    place.append(10)
    flush = place.log.begin_flush()
    flush.run()
    place.log.truncate(0)
    place.append(20)
    place.log.end_flush(flush)
    assert place.log.state.recovery_point == 0


def test_a_crash_right_after_truncation_does_not_trust_the_old_recovery_point(tmp_path: Path) -> None:
    """Otherwise a torn batch written there next would count as damage and the log be refused."""
    place = on_disk(tmp_path)
    for _ in range(5):
        place.append(2)
    place.log.flush()
    place.checkpoint()
    place.log.truncate(4)
    place.append(2)
    size = place.disk.size(place.file(0))
    place.kill()
    place.write_bytes(place.file(0), place.read_bytes(place.file(0))[: size - 3])
    place.open()
    assert place.log.state.end_offset == 4


def test_restart_begins_anew_and_empty(tmp_path: Path) -> None:
    """A follower so far behind that the leader has none of its offsets any more."""
    place = fill(on_disk(tmp_path, segment_bytes=300))
    place.log.restart(100)
    assert place.bases() == [100]
    state = place.log.state
    assert (state.log_start_offset, state.end_offset, state.high_watermark) == (100, 100, 100)
    assert (state.producers.by_id, state.epochs.entries) == ({}, [])
    place.log.append_replicated(numbered(100, 5, leader_epoch=4))
    for clean in (False, True):
        place.reopen(clean=clean)
        assert place.offsets() == list(range(100, 105))
        assert place.log.state.log_start_offset == 100
        assert [tuple(entry) for entry in place.log.state.epochs.entries] == [(4, 100)]


def test_truncation_before_the_first_segment_restarts_there(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    place.log.restart(50)
    place.log.append_replicated(numbered(50, 5))
    place.log.truncate(20)
    assert (place.log.state.log_start_offset, place.log.state.end_offset) == (20, 20)
    place.log.append_replicated(numbered(20))
    place.reopen(clean=False)
    assert place.offsets() == [20]


# Deleting records.


@pytest.mark.parametrize("clean", [True, False])
def test_deleted_records_stay_deleted(tmp_path: Path, clean: bool) -> None:
    place = fill(on_disk(tmp_path, segment_bytes=300))
    for start in (1, 4, 9, 18):
        assert place.log.delete_records(start) == start
        place.checkpoint()
        place.reopen(clean=clean)
        assert place.log.state.log_start_offset == start
        assert place.offsets() == list(range(start, 18))
        assert place.log.state.epochs.entries[0].start_offset == start


def test_deleting_less_than_before_changes_nothing(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path))
    place.log.delete_records(9)
    assert place.log.delete_records(3) == 9


def test_records_above_the_watermark_cannot_be_deleted(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path))
    place.append()
    with pytest.raises(Refused) as refused:
        place.log.delete_records(19)
    assert refused.value.error is Error.OFFSET_OUT_OF_RANGE


# Retention.


def test_retention_by_log_start_removes_whole_segments(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path, segment_bytes=300))
    bases = place.bases()
    place.log.delete_records(bases[2] + 1)
    assert place.log.retain(NOW) == 2
    assert place.bases() == bases[2:]
    assert place.offsets() == list(range(bases[2] + 1, 18))


def test_retention_by_time_moves_the_log_start(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path, segment_bytes=300, retention_ms=1000))
    bases = place.bases()
    assert place.log.retain(NOW + 1000) == 0
    removed = place.log.retain(NOW + 1004)
    assert removed > 0
    assert place.log.state.log_start_offset == bases[removed] == place.bases()[0]
    assert place.offsets() == list(range(bases[removed], 18))


def test_when_all_is_old_the_active_segment_is_closed_and_goes_too(tmp_path: Path) -> None:
    """Otherwise the last records of a topic nobody writes to would stay for ever."""
    place = fill(on_disk(tmp_path, segment_bytes=300, retention_ms=1000))
    segments = len(place.bases())
    assert place.log.retain(NOW + 10_000) == segments
    assert place.bases() == [18]
    assert place.append().first_offset == 18
    place.reopen(clean=False)
    assert place.offsets() == [18]


def test_retention_by_size(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path, segment_bytes=300, retention_bytes=300, retention_ms=-1))
    place.log.retain(NOW)
    state = place.log.state
    assert state.size >= 300
    assert state.size - state.segments[0].size < 300


def test_a_segment_without_timestamps_has_the_time_of_its_file(tmp_path: Path) -> None:
    place = on_disk(tmp_path, retention_ms=1000)
    place.append(timestamp=-1)
    place.log.roll()
    place.append(timestamp=-1)
    place.commit()
    place.disk.set_modified_ms(place.file(0), NOW)
    place.disk.set_modified_ms(place.file(1), NOW + 500)
    assert place.log.retain(NOW + 1000) == 0
    assert place.log.retain(NOW + 1001) == 1


def test_bytes_out_of_use_stay_for_readers_until_their_time(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path, segment_bytes=300, file_delete_delay_ms=60_000))
    held = place.log.read(0, 100, 18)
    expected = held.read()
    place.log.delete_records(18)
    place.log.retain(NOW)
    assert any(name.endswith(files.DELETED) for name in place.names())
    assert held.read() == expected
    place.log.retain(NOW + 59_999)
    assert held.read() == expected
    place.log.retain(NOW + 60_000)
    assert not any(name.endswith(files.DELETED) for name in place.names())


def test_what_was_out_of_use_is_removed_at_the_next_open(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path, segment_bytes=300))
    place.log.delete_records(18)
    place.log.retain(NOW)
    place.reopen(clean=True)
    assert not any(name.endswith(files.DELETED) for name in place.names())
    assert place.log.state.log_start_offset == 18


def test_producers_outlive_the_segments_that_retention_removes(tmp_path: Path) -> None:
    """The next sequence is still known, live and after a crash."""
    place = fill(on_disk(tmp_path, segment_bytes=300))
    before = place.log.state.producers.last_records()
    place.log.delete_records(18)
    place.log.retain(NOW)
    assert place.log.state.producers.last_records() == before
    place.checkpoint()
    place.reopen(clean=False)
    assert place.log.state.producers.last_records() == before


def test_silent_producers_are_forgotten(tmp_path: Path) -> None:
    place = fill(on_disk(tmp_path))
    place.log.expire_producers(NOW + 86_400_000 + 7)
    assert list(place.log.state.producers.by_id) == [0]


def test_the_log_start_is_written_down_before_files_go(tmp_path: Path) -> None:
    """A crash in between must not leave a hole in what counts as the log."""
    place = fill(on_disk(tmp_path, segment_bytes=300))
    place.log.delete_records(10)
    place.log.retain(NOW)
    place.kill()
    place.open()
    assert place.directory.log_starts[KEY] == 10
    assert place.offsets() == list(range(10, 18))
