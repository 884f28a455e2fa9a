"""What is acknowledged as synced is synced: two flushes at a time, too few descriptors, a sync that fails."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from storage_samples import KEY, NOW, Place, batch, config, in_memory

from ottla.core.log import files
from ottla.core.log.checkpoints import decode_epochs, decode_offsets
from ottla.observe.trace import names, recording
from ottla.sim.machine import loop as sim_loop
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import EIO, Fault
from ottla.storage.atomic import read_whole
from ottla.storage.partition_log import Flush, PartitionLog
from ottla.storage.store import LogStore
from ottla.storage.upkeep import Upkeep
from ottla.wire.errors import Refused

EMFILE = errno.EMFILE
OPENS = ("open", "sync_directory", "list", "scan")
TRIES = 20


def disk_of(place: Place) -> SimDisk:
    assert isinstance(place.disk, SimDisk)
    return place.disk


def kept_in_all_power_losses(place: Place, end_offset: int) -> None:
    """Whatever a power loss now leaves, everything before `end_offset` is in it."""
    for seed in range(TRIES):
        found = Place.__new__(Place)
        found.__dict__.update(place.__dict__)
        found.disk = disk_of(place).copy().after_power_loss(Random(seed))
        found.open()
        assert found.offsets()[:end_offset] == list(range(end_offset))


def finish(place: Place, flush: Flush) -> None:
    flush.run()
    place.log.end_flush(flush)


# Two at a time.


def test_an_epoch_that_begins_while_a_flush_runs_does_not_keep_the_one_before_from_the_disk() -> None:
    """The recovery point moves past the records of the one before: recovery will not read their epoch from them."""
    place = in_memory()
    place.log.assign_epoch(1)
    place.append(2, leader_epoch=1)
    flush = place.log.begin_flush()
    place.log.assign_epoch(2)
    finish(place, flush)
    assert place.log.state.recovery_point == 2
    written = read_whole(place.disk, f"{place.log.here.path}/{files.LEADER_EPOCHS}")
    assert written is not None
    assert [(entry.epoch, entry.start_offset) for entry in decode_epochs(written)] == [(1, 0), (2, 2)]
    assert not place.log.here.is_unsynced


@pytest.mark.parametrize("segment_bytes", [10**6, 200], ids=["one segment", "many segments"])
def test_a_flush_does_not_count_on_another_that_has_not_run(segment_bytes: int) -> None:
    """14 of 2,400 acknowledged records were lost: the second of two flushes relied on the first."""
    place = in_memory(segment_bytes=segment_bytes)
    for _ in range(4):
        place.append(2)
    first = place.log.begin_flush()
    for _ in range(2):
        place.append(2)
    second = place.log.begin_flush()
    finish(place, second)
    assert place.log.state.recovery_point == 12
    kept_in_all_power_losses(place, 12)
    finish(place, first)
    assert place.log.state.recovery_point == 12


def test_flushes_in_threads_wait_for_each_other() -> None:
    """The system tells one of two fsyncs of a file that a write has failed, and the other one that all is well."""
    place = in_memory()

    async def main(_: sim_loop.SimLoop) -> list[object]:
        disk_of(place).faults.append(Fault(EIO, operations=("sync",), suffix=".log", nth=1))
        place.append(2)
        flushes = (place.log.flush_in_thread() for _ in range(2))
        return list(await asyncio.gather(*flushes, return_exceptions=True))

    told = sim_loop.run(main, 1, place.clock)
    assert all(isinstance(one, Refused) for one in told)
    assert place.log.state.recovery_point == 0


def test_a_failed_sync_is_noted_though_nobody_waits_for_it() -> None:
    """A task that is cancelled, as all are when a node stops, does not hear what its thread has met."""
    place = in_memory()
    place.append(2)
    disk_of(place).faults.append(Fault(EIO, operations=("sync",), suffix=".log", nth=1))
    flush = place.log.begin_flush()
    with pytest.raises(Refused):
        flush.run()
    assert place.directory.failure is not None
    with pytest.raises(Refused):
        place.log.close()


# Descriptors.


def refused_for_want_of_files(operation: Callable[[], object]) -> bool:
    try:
        operation()
    except Refused as refused:
        if "too many open files" not in refused.text:
            raise
        return True
    return False


@pytest.mark.parametrize("nth", range(1, 9))
@pytest.mark.parametrize("segment_bytes", [10**6, 200], ids=["one segment", "many segments"])
def test_a_flush_without_descriptors_is_refused_and_the_next_one_does_all_of_it(nth: int, segment_bytes: int) -> None:
    """27 of 50 acknowledged records were lost: what the refused flush should have synced, no other did."""
    place = in_memory(segment_bytes=segment_bytes)
    for number in range(6):
        place.append(2, leader_epoch=number)
    disk_of(place).faults.append(Fault(EMFILE, operations=OPENS, nth=nth))
    if refused_for_want_of_files(place.log.flush):
        assert place.log.state.recovery_point == 0
        place.log.flush()
    disk_of(place).faults.clear()
    assert place.directory.failure is None
    assert place.log.state.recovery_point == 12
    kept_in_all_power_losses(place, 12)


def operations() -> dict[str, Callable[[Place], object]]:
    return {
        "append": lambda place: place.append(2, timestamp=NOW + 9),
        "abort": lambda place: place.end_txn(7, commit=False),
        "roll": lambda place: place.log.roll(),
        "delete records": lambda place: place.log.delete_records(5),
        "retain": lambda place: place.log.retain(NOW + 10**9),
        "checkpoint": lambda place: place.directory.checkpoint(
            recovery_points={KEY: 7}, high_watermarks={KEY: 7}, log_starts={KEY: 0}
        ),
    }


@pytest.mark.parametrize("what", operations())
def test_an_operation_without_descriptors_can_be_done_again(what: str) -> None:
    """Nothing of the log is lost or half done, whichever of its files cannot be opened; and the directory stays."""
    refusals = 0
    for nth in range(1, 30):
        place = in_memory(segment_bytes=300, retention_ms=10**8)
        for number in range(3):
            place.append(2, timestamp=NOW + number)
        place.append(2, producer_id=7, transactional=True)
        place.commit()
        place.reopen(clean=True)
        place.commit()
        disk_of(place).faults.append(Fault(EMFILE, operations=OPENS, nth=nth))
        end_offset = place.log.state.end_offset
        if refused_for_want_of_files(lambda place=place: operations()[what](place)):
            refusals += 1
            assert place.log.state.end_offset == end_offset, "refused, so it is not there"
            operations()[what](place)
        disk_of(place).faults.clear()
        assert place.directory.failure is None
        place.append(1, timestamp=NOW + 20)
        if what == "abort":
            assert [txn.first_offset for txn in place.log.aborted_transactions(0, 9)] == [6]
        offsets = place.offsets()
        assert offsets[-1] == place.log.state.end_offset - 1
        place.log.flush()
        place.checkpoint()
        place.reopen(clean=False)
        assert place.offsets() == offsets
    assert refusals, "none of the operation's opens was tried"


def test_a_truncation_that_runs_out_of_descriptors_half_way_takes_the_directory_offline() -> None:
    """What it has done cannot be undone; the next start finishes it."""
    offline = 0
    for nth in range(1, 20):
        place = in_memory(segment_bytes=300)
        for number in range(5):
            place.append(2, timestamp=NOW + number)
        place.log.flush()
        disk_of(place).faults.append(Fault(EMFILE, operations=OPENS, nth=nth))
        try:
            place.log.truncate(5)
        except Refused:
            disk_of(place).faults.clear()
            offline += place.directory.failure is not None
            if place.directory.failure is None:
                place.log.truncate(5)
        disk_of(place).faults.clear()
        place.kill()
        place.open()
        assert place.offsets()[:4] == [0, 1, 2, 3]
    assert offline


# At the roll.


def syncs(place: Place, operation: Callable[[], object]) -> list[str]:
    """The files and directories that an operation waits for."""
    synced = list[str]()

    def observe(_: int, operation: str, path: str) -> None:
        if operation.startswith("sync"):
            synced.append(path)

    disk_of(place).observer = observe
    try:
        operation()
    finally:
        disk_of(place).observer = None
    return synced


def test_rolling_waits_for_no_sync() -> None:
    """It happens on the event loop: a sync of a full segment takes seconds, and everybody waits."""
    asked = list[PartitionLog]()
    place = in_memory(segment_bytes=300)
    place.log._on_unsynced = asked.append  # type: ignore[assignment]
    place.append(2)
    assert asked == [place.log], "the first segment must have a durable name before there is a second one"
    place.log.flush()
    for _ in range(9):
        assert syncs(place, lambda: place.append(2)) == []
    assert len(place.bases()) > 2
    assert len(asked) == len(place.bases())


def test_what_was_closed_is_synced_with_its_indexes_and_moves_the_recovery_point() -> None:
    """19 rolls, no sync before the node stopped: a crash had it read everything again."""
    place = in_memory(segment_bytes=300)
    for number in range(9):
        place.append(2, timestamp=NOW + number)
    closed, active = place.bases()[:-1], place.bases()[-1]
    flush = place.log.begin_flush(active=False)
    synced = syncs(place, flush.run)
    for base_offset in closed:
        for kind in (files.LOG, files.OFFSET_INDEX, files.TIME_INDEX):
            assert place.file(base_offset, kind) in synced
    assert place.file(active) not in synced
    place.log.end_flush(flush)
    assert place.log.state.recovery_point == active
    assert place.log.is_unsynced_beside_the_active_segment, "the names of the snapshots"
    finish(place, place.log.begin_flush(active=False))
    assert not place.log.is_unsynced_beside_the_active_segment
    kept_in_all_power_losses(place, active)


def in_store(scenario: Callable[[LogStore, SimDisk], Coroutine[Any, Any, None]]) -> None:
    async def main(loop: sim_loop.SimLoop) -> None:
        disk = SimDisk(loop.clock, Random(1))
        store = LogStore(disk, loop.clock, Random(1))
        await store.open(["/d"], "cluster", 1, lambda _: config(segment_bytes=300))
        await scenario(store, disk)

    sim_loop.run(main, 1)


def test_a_node_syncs_closed_segments_by_itself_and_writes_the_recovery_point_down() -> None:
    async def scenario(store: LogStore, disk: SimDisk) -> None:
        upkeep = Upkeep(store)
        syncing = asyncio.create_task(upkeep.sync_closed())
        log = store.create(*KEY, bytes([1] * 16), config(segment_bytes=300))
        for _ in range(20):
            log.append(bytearray(batch(2)), 0)
            await asyncio.sleep(0)
        while log.is_unsynced_beside_the_active_segment:
            await asyncio.sleep(1)
        assert log.state.recovery_point == log.state.active.base_offset > 0
        await upkeep.checkpoint()
        file = disk.open(f"/d/{files.RECOVERY_POINTS}", writable=False)
        assert decode_offsets(file.read(0, file.size())) == {KEY: log.state.recovery_point}
        syncing.cancel()

    in_store(scenario)


def test_a_sync_that_found_no_descriptor_is_tried_again() -> None:
    async def scenario(store: LogStore, disk: SimDisk) -> None:
        syncing = asyncio.create_task(Upkeep(store).sync_closed())
        log = store.create(*KEY, bytes([1] * 16), config(segment_bytes=300))
        log.append(bytearray(batch(2)), 0)
        await asyncio.sleep(5)
        disk.faults.append(Fault(EMFILE, operations=("sync_directory",), nth=1))
        with recording() as events:
            for _ in range(20):
                log.append(bytearray(batch(2)), 0)
            await asyncio.sleep(5)
        assert "flush.failed" in names(events)
        assert log.state.recovery_point == log.state.active.base_offset > 0
        syncing.cancel()

    in_store(scenario)


def test_a_log_deleted_while_it_waits_for_its_sync_is_left_alone() -> None:
    """Another may have its path by then."""

    async def scenario(store: LogStore, _: SimDisk) -> None:
        syncing = asyncio.create_task(Upkeep(store).sync_closed())
        log = store.create(*KEY, bytes([1] * 16), config(segment_bytes=300))
        for _ in range(9):
            log.append(bytearray(batch(2)), 0)
        flushing = asyncio.create_task(log.flush_in_thread())
        await asyncio.sleep(0)
        store.delete(KEY)
        again = store.create(*KEY, bytes([2] * 16), config(segment_bytes=300))
        with pytest.raises(Refused, match="not in use"):
            await log.flush_in_thread()
        with pytest.raises(Refused, match="not in use"):
            log.append(bytearray(batch(2)), 0)
        await flushing
        await asyncio.sleep(5)
        assert store.directories[0].failure is None
        assert again.state.end_offset == 0
        assert again.state.epochs.entries == []
        again.append(bytearray(batch(1)), 0)
        assert again.read(0, 1000, 1).read()
        syncing.cancel()

    in_store(scenario)


def test_a_deletion_that_was_refused_does_not_take_what_is_written_after_a_truncation() -> None:
    """The checkpoint has its new name, yet could not be synced: after a truncation it would hide other records."""
    place = in_memory()
    place.append(4)
    place.append(4)
    place.commit()
    place.log.flush()
    disk_of(place).faults.append(Fault(EMFILE, operations=("sync_directory",), nth=1))
    with pytest.raises(Refused, match="too many open files"):
        place.log.delete_records(6)
    disk_of(place).faults.clear()
    place.log.truncate(4)
    place.append(4, leader_epoch=1)
    place.log.flush()
    kept_in_all_power_losses(place, 8)
