"""Syncing in a thread while the loop goes on."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from storage_samples import KEY, NOW, Place, QuickDisk, batch, config, in_memory, on_disk

from ottla.core.log import files
from ottla.sim.machine.clock import SimClock
from ottla.storage.store import LogStore


def test_a_flush_moves_the_recovery_point_to_what_was_there_when_it_began(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    place.append(5)
    flush = place.log.begin_flush()
    place.append(5)
    flush.run()
    place.log.end_flush(flush)
    assert place.log.state.recovery_point == 5
    place.log.flush()
    assert place.log.state.recovery_point == 10


def test_after_a_flush_nothing_is_lost_with_the_power() -> None:
    place = in_memory(segment_bytes=300)
    for _ in range(10):
        place.append(2)
    place.log.flush()
    place.checkpoint()
    place.append(2)
    for seed in range(20):
        place.disk = place.disk.copy().after_power_loss(Random(seed))  # type: ignore[attr-defined]
        place.open()
        assert place.offsets()[:20] == list(range(20))
        place.kill()


def removals() -> dict[str, Callable[[Place], object]]:
    return {
        "truncate": lambda place: place.log.truncate(1),
        "restart": lambda place: place.log.restart(50),
        "retain": lambda place: (place.log.delete_records(place.log.state.end_offset), place.log.retain(NOW)),
        "purge": lambda place: (place.log.delete_records(place.log.state.end_offset), place.log.retain(NOW + 10**9)),
    }


@pytest.mark.parametrize("what", removals())
@pytest.mark.parametrize("clean", [None, True, False])
def test_a_segment_that_goes_during_a_flush_is_no_failure_of_the_disk(
    tmp_path: Path, what: str, clean: bool | None
) -> None:
    """Otherwise retention would take a healthy directory offline, or leave index files without a log behind."""
    place = on_disk(tmp_path, segment_bytes=300)
    for _ in range(10):
        place.append(2)
    place.commit()
    if clean is not None:
        place.checkpoint()
        place.reopen(clean=clean)
    flush = place.log.begin_flush()
    removals()[what](place)
    present = place.names()
    flush.run()
    place.log.end_flush(flush)
    assert place.names() == present
    assert place.directory.failure is None
    place.append(3)
    end = place.log.state.end_offset
    assert place.offsets()[-3:] == [end - 3, end - 2, end - 1]


def test_a_topic_deleted_during_a_flush_is_no_failure_of_the_disk(tmp_path: Path) -> None:
    """KAFKA-13403: the directory has another name by then."""

    async def scenario() -> None:
        store = LogStore(QuickDisk(), SimClock(), Random(1))
        await store.open([str(tmp_path)], "cluster", 1, lambda _: config())
        log = store.create(*KEY, bytes([1] * 16), config())
        log.append(bytearray(batch()), 0)
        log.roll()
        flush = log.begin_flush()
        store.delete(KEY)
        flush.run()
        assert store.directories[0].failure is None
        store.create(*KEY, bytes([2] * 16), config())

    asyncio.run(scenario())


def test_closing_leaves_every_index_entry_in_its_file(tmp_path: Path) -> None:
    place = on_disk(tmp_path)
    for number in range(5):
        place.append(timestamp=NOW + number)
    assert place.disk.size(place.file(0, files.OFFSET_INDEX)) == 0
    place.close()
    assert place.disk.size(place.file(0, files.OFFSET_INDEX)) == 4 * 8
    assert place.disk.size(place.file(0, files.TIME_INDEX)) == 4 * 12
