"""The summary that a clean close leaves: when it is written, believed, voided; and what is done without it."""

import asyncio
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_samples import NOW, Place, in_memory, on_disk

from ottla.core.log import files
from ottla.observe.trace import names, recording
from ottla.sim.machine.disk import SimDisk


def filled(place: Place, segments: int, **more: int) -> Place:
    """One batch in each segment, a second apart."""
    for number in range(len(place.bases()), len(place.bases()) + segments):
        place.append(1, timestamp=NOW + 1_000 * number, **more)
        place.log.roll()
    place.append(1, timestamp=NOW, **more)
    place.commit()
    return place


def summary_of(place: Place) -> str:
    return f"{place.path}/{files.SEGMENT_SUMMARY}"


def offset_at(place: Place, number: int) -> int | None:
    found = place.log.find_time(NOW + 1_000 * number)
    return None if found is None else found.offset


def steps_of_first_look_ups(segments: int) -> int:
    """How often the disk is asked, by time and for the largest time."""
    place = filled(in_memory(), segments)
    place.reopen(clean=True)
    assert isinstance(place.disk, SimDisk)
    before = place.disk.step
    assert offset_at(place, segments // 2) == segments // 2 - 1
    largest = place.log.find_max_timestamp()
    assert largest is not None
    assert largest.offset == segments - 1
    return place.disk.step - before


def test_first_look_up_by_time_costs_the_same_whatever_was_closed() -> None:
    """Otherwise a node with a long log stands still when the first consumer asks for a time."""
    assert steps_of_first_look_ups(600) <= steps_of_first_look_ups(10) + 5


def left_by_kafka(place: Place) -> None:
    """Somebody else has used the directory since Ottla closed it, and closed it, too."""
    place.disk.remove(f"{place.root}/{files.OWN_CLEAN_SHUTDOWN}")


def test_a_log_of_one_segment_has_none() -> None:
    """Its checkpoint says where it ended; of several, one may be gone without anybody noticing."""
    place = in_memory()
    place.append(1)
    place.reopen(clean=True)
    assert files.SEGMENT_SUMMARY not in place.names()
    filled(place, 1)
    place.close()
    assert files.SEGMENT_SUMMARY in place.names()


def test_it_outlives_a_crash_and_covers_what_was_closed_before(tmp_path: Path) -> None:
    """Only the segments since have to be asked."""
    place = filled(on_disk(tmp_path), 10)
    place.reopen(clean=True)
    filled(place, 5)
    place.log.flush()
    place.checkpoint()
    place.reopen(clean=False)
    assert offset_at(place, 14) == 14
    assert not any(segment.times_known for segment in place.log.state.segments[:10])
    for number in range(1, 11):
        assert offset_at(place, number) == number - 1


@pytest.mark.parametrize("cut", [0, 3, 10])
def test_a_truncation_voids_it(cut: int) -> None:
    """What is written in the place of what it knew has other times."""
    place = filled(in_memory(), 10)
    place.reopen(clean=True)
    place.log.truncate(cut)
    assert files.SEGMENT_SUMMARY not in place.names()
    place.append(12, timestamp=NOW + 70_000, leader_epoch=1)
    place.commit()
    found = place.log.find_time(NOW + 60_000)
    assert found is not None
    assert found.offset == cut


def test_one_that_was_written_before_others_truncated_is_not_believed() -> None:
    """Apache Kafka leaves the file alone, and may cut the log and write on in a later epoch."""
    place = filled(in_memory(), 10)
    place.close()
    old = place.read_bytes(summary_of(place))
    place.open()
    place.log.truncate(4)
    for _ in range(9):
        place.append(1, timestamp=NOW + 70_000, leader_epoch=1)
        place.log.roll()
    place.close()
    place.write_bytes(summary_of(place), old)
    left_by_kafka(place)
    place.open()
    with recording() as events:
        assert offset_at(place, 60) == 4
    assert names(events) == ["summary.dropped"]
    assert files.SEGMENT_SUMMARY not in place.names()


def test_one_of_a_longer_log_is_not_believed() -> None:
    place = filled(in_memory(), 10)
    place.close()
    old = place.read_bytes(summary_of(place))
    place.open()
    place.log.truncate(4)
    place.close()
    place.write_bytes(summary_of(place), old)
    left_by_kafka(place)
    place.open()
    with recording() as events:
        assert offset_at(place, 8) is None
    assert names(events) == ["summary.dropped"]


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_a_flipped_bit_in_it_is_harmless(bit: int) -> None:
    place = filled(in_memory(), 8)
    place.close()
    assert isinstance(place.disk, SimDisk)
    place.disk.flip_bit(summary_of(place), bit % (8 * place.disk.size(summary_of(place))))
    place.open()
    for number in range(1, 9):
        assert offset_at(place, number) == number - 1
    assert offset_at(place, 9) is None
    largest = place.log.find_max_timestamp()
    assert largest is not None
    assert largest.offset == 7


def test_a_time_that_retention_took_away_misleads_nobody(tmp_path: Path) -> None:
    """A record from the future stood in the first segment; the bounds of all the others still know it."""
    place = on_disk(tmp_path)
    place.append(1, timestamp=NOW + 3_000_000)
    place.log.roll()
    filled(place, 8)
    place.reopen(clean=True)
    place.commit()
    place.log.delete_records(1)
    place.log.retain(NOW)
    assert place.bases()[0] == 1
    for number in range(2, 10):
        assert offset_at(place, number) == number - 1
    assert offset_at(place, 10) is None
    largest = place.log.find_max_timestamp()
    assert largest is not None
    assert (largest.offset, largest.timestamp) == (8, NOW + 9_000)


def test_it_is_written_anew_only_when_there_is_something_new(tmp_path: Path) -> None:
    place = filled(on_disk(tmp_path), 6)
    place.close()
    first = Path(summary_of(place)).stat().st_ino
    place.open()
    assert offset_at(place, 3) == 2
    place.close()
    assert Path(summary_of(place)).stat().st_ino == first
    place.open()
    filled(place, 1)
    place.close()
    place.open()
    assert Path(summary_of(place)).stat().st_ino != first


def learned(place: Place) -> None:
    asyncio.run(place.log.learn_times())


def test_without_one_the_times_of_many_segments_are_learned_in_a_thread(tmp_path: Path) -> None:
    """Reading them on the event loop would stop everybody else."""
    place = filled(on_disk(tmp_path), 60)
    place.close()
    place.disk.remove(summary_of(place))
    place.open()
    assert place.log.must_learn_times
    learned(place)
    assert not place.log.must_learn_times
    assert all(segment.times_known for segment in place.log.state.segments)
    for number in range(1, 61):
        assert offset_at(place, number) == number - 1


def test_what_goes_while_times_are_learned_leaves_nothing_behind(tmp_path: Path) -> None:
    place = filled(on_disk(tmp_path), 60)
    place.close()
    place.disk.remove(summary_of(place))
    place.open()
    place.commit()

    async def learn_while_others_delete() -> None:
        learning = asyncio.ensure_future(place.log.learn_times())
        await asyncio.sleep(0)
        place.log.delete_records(30)
        place.log.retain(NOW)
        await learning

    asyncio.run(learn_while_others_delete())
    assert place.bases()[0] == 30
    in_use = [name for name in place.names() if files.parse_file(name) and not name.endswith(files.DELETED)]
    assert min(in_use) == files.file_name(30, files.OFFSET_INDEX)
    assert offset_at(place, 40) == 39


def test_a_lying_index_is_left_to_the_look_up(tmp_path: Path) -> None:
    """The thread changes nothing: only the loop writes."""
    place = filled(on_disk(tmp_path), 60)
    place.close()
    place.disk.remove(summary_of(place))
    path = place.file(20, files.TIME_INDEX)
    place.write_bytes(path, bytes(len(place.read_bytes(path))))
    place.open()
    with recording() as events:
        learned(place)
    assert events == []
    with recording() as events:
        assert offset_at(place, 21) == 20
    assert names(events) == ["index.rebuilt"]


def test_it_is_durable_or_not_there() -> None:
    """It is written before the mark of a clean shutdown, and whole."""
    place = filled(in_memory(), 8)
    place.close()
    assert isinstance(place.disk, SimDisk)
    found = Place(place.disk.after_power_loss(Random(1)), place.root, place.clock)
    assert files.SEGMENT_SUMMARY in found.names()
    assert offset_at(found, 5) == 4
