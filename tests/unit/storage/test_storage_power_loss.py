"""What random runs of the simulator taught about power losses, each in its shortest form."""

from collections.abc import Callable, Iterator
from itertools import count
from random import Random

import pytest
from storage_samples import NOW, Place, in_memory

from ottla.core.log import files
from ottla.kernel import CorruptBatch, read_header
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import PowerLoss
from ottla.storage.recovery import LogDamaged

TRIES = 30


def after_power_losses(place: Place) -> Iterator[Place]:
    """The same place, opened after the power was lost, in many ways."""
    disk = place.disk
    assert isinstance(disk, SimDisk)
    for seed in range(TRIES):
        found = Place.__new__(Place)
        found.__dict__.update(place.__dict__)
        found.disk = disk.copy().after_power_loss(Random(seed))
        found.open()
        yield found


def at_every_crash_point(make: Callable[[], Place], operation: Callable[[Place], object]) -> Iterator[Place]:
    """The place that `make` gives, opened after the power was lost before some disk step of `operation`."""
    for step in count(1):
        place = make()
        assert isinstance(place.disk, SimDisk)
        place.disk.crash_at(place.disk.step + step)
        try:
            operation(place)
        except PowerLoss:
            yield from after_power_losses(place)
        else:
            return


def test_the_name_of_a_new_log_directory_is_durable():
    clock = SimClock()
    place = Place(SimDisk(clock, Random(1)), "/not/yet/there", clock)
    place.append(3)
    place.log.flush()
    for found in after_power_losses(place):
        assert found.offsets() == [0, 1, 2]


def test_the_indexes_of_a_segment_closed_after_the_last_sync_are_durable_with_the_next():
    """Its records were synced while it was active, so its own offsets are below the recovery point already."""
    place = in_memory()
    place.append(3, timestamp=NOW + 5)
    place.log.flush()
    place.log.roll()
    place.append(1, timestamp=NOW)
    place.log.flush()
    place.checkpoint()
    for found in after_power_losses(place):
        found_time = found.log.find_time(NOW + 5)
        assert found_time is not None
        assert found_time.offset == 0


def test_a_torn_segment_is_cut_before_its_index_is_mended():
    place = in_memory()
    place.append(3)
    place.append(2)
    place.kill()
    place.write_bytes(place.file(0), place.read_bytes(place.file(0))[:-7])
    place.write_bytes(place.file(0, files.OFFSET_INDEX), b"odd")
    place.open()
    assert place.offsets() == [0, 1, 2]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_what_follows_a_lost_end_of_a_segment_is_lost_too(policy):
    place = in_memory(cleanup_policy=policy)
    for _ in range(3):
        for _ in range(3):
            place.append(2)
        place.log.roll()
    for found in after_power_losses(place):
        assert found.offsets() == list(range(len(found.offsets())))


@pytest.mark.parametrize("clean", [True, False])
def test_a_transaction_that_ended_above_the_watermark_is_undecided_after_a_restart(clean):
    """A snapshot tells what is open, not what ended too lately for readers to know."""
    place = in_memory()
    place.append(1, producer_id=7, transactional=True)
    place.commit()
    place.end_txn(7, commit=True)
    place.log.roll()
    place.append(1)
    assert place.log.state.last_stable_offset == 0
    place.log.flush()
    place.checkpoint()
    log = place.reopen(clean=clean)
    assert (log.state.high_watermark, log.state.last_stable_offset) == (1, 0)
    place.commit()
    assert log.state.last_stable_offset == 3


def test_deleted_records_that_were_not_synced_do_not_come_back_without_their_epoch():
    place = in_memory()
    place.append(4)
    place.append(4, leader_epoch=1)
    place.log.flush()
    place.commit()
    place.log.delete_records(6)
    for found in after_power_losses(place):
        assert found.log.state.epochs.epoch_at(found.log.state.log_start_offset) == 1


def test_recovering_twice_gives_the_same_epochs_where_the_log_is_empty():
    place = in_memory()
    place.append(4, leader_epoch=3)
    place.log.flush()
    place.commit()
    place.log.delete_records(4)
    place.log.assign_epoch(5)
    place.log.flush()
    for found in after_power_losses(place):
        assert found.log.state.epochs.latest == 5
        first = list(found.log.state.epochs.entries)
        found.kill()
        assert found.open().state.epochs.entries == first


def test_a_truncation_into_a_batch_before_the_log_start_takes_the_start_along():
    place = in_memory()
    place.append(4)
    place.append(4)
    place.commit()
    place.log.delete_records(6)
    place.log.truncate(7)
    assert (place.log.state.log_start_offset, place.log.state.end_offset) == (4, 4)
    for found in after_power_losses(place):
        assert found.log.state.end_offset <= 4
        assert found.append(1).first_offset == found.offsets()[0]


def test_records_that_a_half_done_truncation_brings_back_have_their_epoch():
    """The log start goes back to where the batch begins; a crash may keep the batch, and followers ask for epochs."""

    def with_a_start_inside_a_batch() -> Place:
        place = in_memory()
        place.append(4)
        place.append(4, leader_epoch=3)
        place.log.flush()
        place.commit()
        place.log.delete_records(6)
        return place

    starts = set()
    for found in at_every_crash_point(with_a_start_inside_a_batch, lambda place: place.log.truncate(7)):
        state = found.log.state
        starts.add((state.log_start_offset, state.end_offset))
        if state.end_offset > state.log_start_offset:
            assert state.epochs.epoch_at(state.log_start_offset) == 3
    assert (4, 8) in starts, "a crash before the cut, after the log start was lowered"


def test_what_was_lost_below_the_log_start_leaves_no_outdated_producers():
    """DeleteRecords makes a loss below it legal, not what older batches tell of a producer that has written since."""
    place = in_memory()
    place.append(1, producer_id=7, epoch=0)
    place.log.roll()
    place.log.flush()
    place.checkpoint()
    place.append(1, producer_id=7, epoch=1)
    place.append(1, producer_id=8)
    place.log.roll()
    place.append(2)
    place.commit()
    place.log.delete_records(4)
    kept = 0
    for found in after_power_losses(place):
        state = found.log.state
        assert state.log_start_offset == 4
        if state.end_offset == 5 and (known := state.producers.by_id.get(7)) is not None:
            assert known.epoch == 1
        kept += state.end_offset == 5 and 7 not in state.producers.by_id
        found.append(1, producer_id=7, epoch=1, sequence=1)
    assert kept, "the segment in the middle is lost, the one after it is not"


def test_a_watermark_above_what_was_recovered_does_not_count_for_what_is_written_next():
    place = in_memory()
    place.append(4)
    place.log.flush()
    place.append(4)
    place.commit()
    place.checkpoint()
    for found in after_power_losses(place):
        if found.log.state.end_offset < 8:
            found.append(9)
            found.kill()
            assert found.open().state.high_watermark <= 4


def test_an_open_transaction_outlives_the_segments_it_began_in():
    """Their records may go, yet what follows of it is still undecided."""
    place = in_memory()
    place.append(1, producer_id=7, transactional=True)
    place.log.roll()
    place.append(1)
    place.commit()
    place.log.delete_records(1)
    place.log.retain(NOW)
    assert place.bases() == [1]
    for found in after_power_losses(place):
        assert found.log.state.producers.by_id[7].txn_first_offset == 0


def test_retention_interrupted_between_two_segments_loses_nothing_and_opens_no_transaction():
    """Of the segments that go any may come back; the first of these began what the second ended."""
    place = in_memory()
    place.append(1, producer_id=7, transactional=True)
    place.log.roll()
    place.end_txn(7, commit=True)
    place.log.roll()
    place.append(3)
    place.log.flush()
    place.commit()
    place.log.delete_records(2)
    disk = place.disk
    assert isinstance(disk, SimDisk)
    gone = next(iter(after_power_losses(place)))
    gone.log.retain(NOW)
    found = Place.__new__(Place)
    found.__dict__.update(gone.__dict__)
    for path, data in disk.contents().items():
        if data is not None and "/00000000000000000000." in path:
            found.write_bytes(path, data)  # The first segment comes back, the second does not.
    found.kill()
    found.open()
    assert found.offsets() == [2, 3, 4]
    assert found.log.state.producers.by_id[7].txn_first_offset is None


def test_the_last_header_is_believed_only_with_its_crc():
    """A clean open counts all later offsets from it."""
    place = in_memory()
    place.append(2)
    place.close()
    assert isinstance(place.disk, SimDisk)
    place.disk.flip_bit(place.file(0), 8 * 23 + 1)  # in the last offset delta
    with pytest.raises(LogDamaged, match="wrong CRC"):
        place.open()


def test_a_look_up_by_time_does_not_answer_from_a_damaged_batch():
    place = in_memory()
    place.append(3, timestamp=NOW, step=10)
    assert isinstance(place.disk, SimDisk)
    place.disk.flip_bit(place.file(0), 8 * 63 + 1)  # in the first record
    with pytest.raises(CorruptBatch, match="wrong CRC"):
        place.log.find_time(NOW + 10)


def test_a_synced_snapshot_knows_more_than_the_batches_the_cleaner_left():
    """The cleaner need not keep a batch that is not its producer's last; then what came after it is truncated."""
    place = in_memory(cleanup_policy="compact")
    place.append(1, producer_id=7, key=b"a")
    place.append(1, key=b"a")
    place.log.roll()
    place.append(1)
    place.log.flush()
    place.checkpoint()
    log = place.read_bytes(place.file(0))
    place.kill()
    place.write_bytes(place.file(0), log[read_header(log).size :])
    place.write_offsets(files.RECOVERY_POINTS, 2)
    place.open()
    assert place.log.state.producers.by_id[7].last_sequence == 0


def test_a_flush_makes_durable_what_a_killed_process_left():
    """Its files are found, and so are their records; that their names are durable nobody has promised."""
    place = in_memory()
    place.append(3)
    place.reopen(clean=False)
    place.log.flush()
    for found in after_power_losses(place):
        assert found.offsets() == [0, 1, 2]


def test_after_a_kill_a_new_segment_is_not_found_without_the_one_before_it():
    place = in_memory()
    place.append(3)
    place.reopen(clean=False)
    place.log.roll()
    place.append(3)
    for found in after_power_losses(place):
        assert found.log.state.log_start_offset == 0


def test_a_flush_makes_durable_whose_log_a_killed_process_had_begun():
    """The topic's id was written, not synced; after a recovery point nobody would forgive its loss."""
    place = in_memory()
    place.log.set_topic_id(bytes(range(16)))
    place.append(3)
    place.reopen(clean=False)
    place.log.flush()
    place.checkpoint()
    for found in after_power_losses(place):
        assert found.log.topic_id == bytes(range(16))


def test_a_snapshot_that_a_roll_made_does_not_vouch_for_the_indexes():
    """Rolling syncs nothing: after a crash the transaction index of the closed segment is made anew."""
    place = in_memory()
    place.append(1, producer_id=7, transactional=True)
    place.end_txn(7, commit=False)
    place.log.flush()
    place.log.roll()
    place.commit()
    place.checkpoint()
    for found in after_power_losses(place):
        assert [txn.first_offset for txn in found.log.aborted_transactions(0, 2)] == [0]


def test_recovery_does_not_undo_what_a_clean_close_had_synced():
    """It goes on from there, and a second crash must find the beginning of the transaction index still in place."""
    place = in_memory()
    place.append(1, producer_id=7, transactional=True)
    place.end_txn(7, commit=False)
    place.commit()
    place.reopen(clean=True)
    place.append(1, producer_id=8, transactional=True)
    place.end_txn(8, commit=False)
    place.log.flush()
    place.checkpoint()
    for found in after_power_losses(place):
        for again in after_power_losses(found):
            assert [txn.producer_id for txn in again.log.aborted_transactions(0, 4)] == [7, 8]


def test_a_damaged_marker_does_not_make_its_transaction_committed():
    """Index and log disagree then, where no checksum tells which is right; the index is rebuilt only from batches whose
    CRC is."""
    place = in_memory()
    place.append(1, producer_id=7, transactional=True)
    place.end_txn(7, commit=False)
    place.log.roll()
    place.commit()
    place.close()
    assert isinstance(place.disk, SimDisk)
    place.disk.remove(f"{place.path}/{files.SEGMENT_SUMMARY}")
    marker_at = read_header(place.read_bytes(place.file(0))).size
    place.disk.flip_bit(place.file(0), 8 * (marker_at + 50))  # in the producer id
    place.open()
    with pytest.raises(CorruptBatch, match="wrong CRC"):
        place.log.aborted_transactions(0, 2)
