"""What a crash and a damaged byte together cost: nothing of what was synced, and the rest is set aside, not removed."""

from itertools import count
from pathlib import Path
from random import Random

import pytest
from storage_samples import KEY, NOW, Place, in_memory, on_disk
from test_storage_clean_open import CountingDisk, CountingFile

from ottla.core.log import files
from ottla.core.log.files import parse_file
from ottla.kernel import scan
from ottla.observe.trace import Event, recording
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import PowerLoss

SEGMENTS = 20


def long_log(place: Place) -> Place:
    """Batches of two records, three to a segment, all synced but what is in the last one."""
    while len(place.bases()) < SEGMENTS:
        place.append(2, timestamp=NOW + place.log.state.end_offset, producer_id=7, sequence=place.log.state.end_offset)
    place.append(2, timestamp=NOW + 10**6)
    place.commit()
    while place.log.is_unsynced_beside_the_active_segment:
        flush = place.log.begin_flush(active=False)
        flush.run()
        place.log.end_flush(flush)
    place.checkpoint()
    return place


def damage(place: Place, base_offset: int, at: int = 70) -> None:
    data = bytearray(place.read_bytes(place.file(base_offset)))
    data[at] ^= 1
    place.write_bytes(place.file(base_offset), bytes(data))


def the_one(events: list[Event], name: str) -> Event:
    [event] = [event for event in events if event.name == name]
    return event


def test_a_flipped_bit_in_a_segment_that_was_synced_costs_that_batch_and_no_other(tmp_path: Path) -> None:
    """After kill -9 the log was cut there and 15 later segments were removed: 15,599 acknowledged records gone. Kafka
    keeps all 20,000."""
    place = long_log(on_disk(tmp_path, segment_bytes=300))
    fifth, end_offset = place.bases()[4], place.log.state.end_offset
    place.kill()
    damage(place, fifth)
    place.open()
    assert place.log.state.end_offset == end_offset
    assert len(place.bases()) == SEGMENTS
    assert place.log.state.producers.by_id[7].last_sequence >= 0
    bad = place.log.read(fifth, 1, end_offset).read()
    assert "CRC" in str(scan(bad).fault)
    for offset in (0, fifth - 1, fifth + 2, end_offset - 1):
        assert scan(place.log.read(offset, 1, end_offset).read()).fault is None


def test_after_a_crash_only_what_is_past_the_recovery_point_is_read(tmp_path: Path) -> None:
    """A segment has a gigabyte: one that was synced, with its indexes, when it was closed need not be read again."""
    place = on_disk(tmp_path, segment_bytes=100_000)
    for number in range(10):
        for _ in range(19):
            place.append(1, value=bytes(5_000), timestamp=NOW + number)
        if number < 9:
            place.log.roll()
    place.commit()
    for _ in range(2):
        flush = place.log.begin_flush(active=False)
        flush.run()
        place.log.end_flush(flush)
    place.checkpoint()
    place.kill()
    place.disk = CountingDisk()
    CountingFile.read_bytes = 0
    place.open()
    assert place.log.state.end_offset == 190
    assert 95_000 < CountingFile.read_bytes < 150_000, "the active segment, and no other"
    assert place.log.state.recovery_point == 171


def test_a_closed_segment_whose_indexes_may_not_be_synced_is_read_again() -> None:
    """Its records may have been synced while it was active. A lost end of its time index would hide them."""
    place = in_memory(index_interval_bytes=0)
    place.append(2, timestamp=NOW)
    place.append(2, timestamp=NOW + 5, producer_id=7, transactional=True)
    place.end_txn(7, commit=False)
    place.log.flush()
    place.checkpoint()
    place.log.roll()
    place.append(1, timestamp=NOW)
    place.commit()
    assert place.directory.recovery_points[KEY] == place.bases()[1]
    disk = place.disk
    assert isinstance(disk, SimDisk)
    for seed in range(30):
        place.disk = disk.copy().after_power_loss(Random(seed))
        place.open()
        found = place.log.find_time(NOW + 5)
        assert found is not None
        assert found.offset == 2
        assert [txn.first_offset for txn in place.log.aborted_transactions(0, 5)] == [2]


def test_recovery_syncs_what_it_has_read_again(tmp_path: Path) -> None:
    """The next crash finds less to read."""
    place = on_disk(tmp_path, segment_bytes=300)
    for _ in range(12):
        place.append(2)
    place.reopen(clean=False)
    assert place.log.state.recovery_point == place.bases()[-1] > 0


# Setting aside.


def aside_of(place: Place) -> Path:
    [aside] = [path for path in Path(place.path).iterdir() if path.is_dir()]
    assert aside.name.startswith(files.SET_ASIDE)
    return aside


def test_segments_behind_a_cut_are_set_aside_where_the_line_says(tmp_path: Path) -> None:
    place = on_disk(tmp_path, segment_bytes=300)
    for _ in range(12):
        place.append(2)
    bases, cut = place.bases(), place.bases()[1]
    place.kill()
    before = {base: place.read_bytes(place.file(base)) for base in bases}
    damage(place, cut)
    with recording() as events:
        place.open()
    assert place.offsets() == list(range(cut))
    assert place.bases() == bases[:2]
    aside = aside_of(place)
    assert the_one(events, "log.segments_dropped").fields["set_aside"] == str(aside)
    assert the_one(events, "log.cut").fields["set_aside"] == str(aside)
    for base in bases[2:]:
        assert (aside / files.file_name(base, files.LOG)).read_bytes() == before[base]
        assert not place.disk.exists(place.file(base))
    [tail] = [path for path in aside.iterdir() if ".from-" in path.name]
    assert len(tail.read_bytes()) == len(before[cut])
    # Nobody takes any of it for a part of the log: not Kafka, which looks at plain files and how their names end.
    assert parse_file(aside.name) is None
    assert not tail.name.endswith((files.LOG, files.SNAPSHOT, *files.INDEXES))
    place.append(1)
    place.reopen(clean=True)
    assert place.offsets() == list(range(cut + 1))


def test_each_recovery_sets_aside_in_a_directory_of_its_own(tmp_path: Path) -> None:
    place = on_disk(tmp_path, segment_bytes=300)
    for number in range(2):
        while len(place.bases()) < 4:
            place.append(2)
        place.kill()
        place.directory.recovery_points.clear()
        place.write_offsets(files.RECOVERY_POINTS, 0)
        damage(place, place.bases()[1])
        place.open()
        asides = [path for path in Path(place.path).iterdir() if path.is_dir()]
        assert len(asides) == number + 1


@pytest.mark.parametrize("lost", [1, 30, 90])
def test_a_torn_end_is_cut_and_not_kept(tmp_path: Path, lost: int) -> None:
    """There is nothing to be read in it, and every power loss leaves one."""
    place = on_disk(tmp_path)
    place.append(2)
    place.append(2)
    place.kill()
    data = place.read_bytes(place.file(0))
    place.write_bytes(place.file(0), data[:-lost])
    with recording() as events:
        place.open()
    assert place.log.state.end_offset < 4
    if len(data) // 2 != lost:
        assert the_one(events, "log.cut").fields["set_aside"] is None
    assert not [path for path in Path(place.path).iterdir() if path.is_dir()]


@pytest.mark.parametrize("at", [8, 9, 16], ids=["length", "length, low", "magic"])
def test_whole_batches_behind_a_broken_frame_are_found_and_kept(tmp_path: Path, at: int) -> None:
    """Its length leads nowhere; acknowledged records stand behind it."""
    place = on_disk(tmp_path)
    for _ in range(4):
        place.append(2)
    place.kill()
    before = place.read_bytes(place.file(0))
    second = len(before) // 4
    damage(place, 0, second + at)
    place.open()
    assert place.offsets() == [0, 1]
    [tail] = list(aside_of(place).iterdir())
    assert tail.name == f"{files.file_name(0, files.LOG)}.from-{second}"
    assert scan(tail.read_bytes()[second:]).headers[-1].last_offset == 7


def test_a_log_start_past_the_end_sets_aside_what_there_was(tmp_path: Path) -> None:
    """After a crash it may be right: records were deleted, and the end was lost. But it may be damaged, too."""
    place = on_disk(tmp_path)
    place.append(5)
    place.kill()
    before = place.read_bytes(place.file(0))
    place.write_offsets(files.LOG_STARTS, 50)
    with recording() as events:
        place.open()
    assert place.log.state.log_start_offset == place.log.state.end_offset == 50
    assert (aside_of(place) / files.file_name(0, files.LOG)).read_bytes() == before
    assert the_one(events, "log.restarted").fields["set_aside"] == str(aside_of(place))


# What recovery cuts off stays cut off.


def test_what_recovery_has_cut_off_does_not_come_back_with_a_power_loss() -> None:
    """The cut was not synced: after it, a clean stop and a power loss the log was refused (seed 907801)."""
    for seed in range(40):
        place = in_memory()
        place.append(3)
        place.log.flush()
        place.checkpoint()
        place.append(3)
        assert isinstance(place.disk, SimDisk)
        place.disk = place.disk.after_power_loss(Random(seed))
        place.open()
        end_offset = place.log.state.end_offset
        place.close()
        assert isinstance(place.disk, SimDisk)
        place.disk = place.disk.after_power_loss(Random(seed + 1))
        place.open()
        assert place.log.state.end_offset == end_offset
        assert place.offsets() == list(range(end_offset))


def test_setting_aside_survives_a_crash_at_any_moment() -> None:
    """Otherwise a segment that comes back stands behind what was written in its place."""
    place = in_memory(segment_bytes=300)
    for _ in range(12):
        place.append(2)
    place.kill()
    damage(place, place.bases()[1])
    damaged = place.disk
    assert isinstance(damaged, SimDisk)
    for step in count(1):
        place.disk = damaged.copy()
        place.disk.crash_at(step)
        try:
            place.open()
        except PowerLoss:
            for seed in range(4):
                check_what_is_written_next(place, Random(seed))
        else:
            break
    assert step > 50


def check_what_is_written_next(place: Place, random: Random) -> None:
    assert isinstance(place.disk, SimDisk)
    crashed = place.disk
    place.disk = crashed.copy().after_power_loss(random)
    place.open()
    first = place.append(2).first_offset
    place.log.flush()
    place.disk = place.disk.after_power_loss(random)
    place.open()
    assert place.offsets() == list(range(first + 2))
    place.disk = crashed
