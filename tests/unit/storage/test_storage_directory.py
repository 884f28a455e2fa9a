"""One of the `log.dirs`: whose it is, how it was left, how it fails."""

import errno
from pathlib import Path
from random import Random

import pytest
from storage_samples import KEY, Place, QuickDisk, in_memory, on_disk

from ottla.core.log import files
from ottla.core.log.checkpoints import MetaProperties, decode_offsets
from ottla.io.disk import LocalDisk
from ottla.observe.trace import names, recording
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.sim.machine.faults import EIO, Fault
from ottla.storage.log_directory import DirectoryInUse, LogDirectory, WrongDirectory
from ottla.wire.errors import Error, Refused


def new_id() -> bytes:
    return bytes([7] * 16)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    first = LogDirectory(QuickDisk(), str(tmp_path))
    with pytest.raises(DirectoryInUse, match="in use"):
        LogDirectory(QuickDisk(), str(tmp_path))
    first.close(clean=False)
    LogDirectory(QuickDisk(), str(tmp_path)).close(clean=False)


def test_an_empty_directory_is_taken_and_known_again(tmp_path: Path) -> None:
    for _ in range(2):
        directory = LogDirectory(QuickDisk(), str(tmp_path))
        directory.claim("cluster", 1, new_id)
        assert directory.meta == MetaProperties("cluster", 1, bytes([7] * 16))
        directory.close(clean=True)


@pytest.mark.parametrize(("cluster", "node"), [("cluster", 2), ("other", 1)])
def test_the_directory_of_another_node_is_refused(tmp_path: Path, cluster: str, node: int) -> None:
    """X1: a broker that takes another's disk comes back with somebody else's replicas."""
    directory = LogDirectory(QuickDisk(), str(tmp_path))
    directory.claim("cluster", 1, new_id)
    with pytest.raises(WrongDirectory, match=r"node 1 of cluster cluster.*log\.dirs"):
        directory.claim(cluster, node, new_id)


def test_meta_properties_without_a_directory_id_get_one(tmp_path: Path) -> None:
    (tmp_path / files.META_PROPERTIES).write_bytes(b"version=1\nnode.id=1\ncluster.id=cluster\n")
    directory = LogDirectory(QuickDisk(), str(tmp_path))
    directory.claim("cluster", 1, new_id)
    assert MetaProperties.decode((tmp_path / files.META_PROPERTIES).read_bytes()).directory_id == bytes([7] * 16)


@pytest.mark.parametrize("there", ["topic-0", "__cluster_metadata-0", files.RECOVERY_POINTS, files.CLEAN_SHUTDOWN])
def test_a_directory_that_was_used_and_lost_its_meta_properties_is_not_taken_anew(tmp_path: Path, there: str) -> None:
    """It would become part of another cluster, with everything in it."""
    if "-0" in there:
        (tmp_path / there).mkdir()
    else:
        (tmp_path / there).write_bytes(b"")
    directory = LogDirectory(QuickDisk(), str(tmp_path))
    with pytest.raises(WrongDirectory, match=rf"{files.META_PROPERTIES} is missing, though there is {there}"):
        directory.claim("cluster", 1, new_id)
    assert not (tmp_path / files.META_PROPERTIES).exists()


def test_meta_properties_that_cannot_be_read_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / files.META_PROPERTIES).write_bytes(b"junk")
    directory = LogDirectory(QuickDisk(), str(tmp_path))
    with pytest.raises(WrongDirectory, match=str(tmp_path)):
        directory.claim("cluster", 1, new_id)
    assert (tmp_path / files.META_PROPERTIES).read_bytes() == b"junk"


def test_a_partition_that_is_gone_leaves_no_checkpoints(tmp_path: Path) -> None:
    """A new one of the same name would otherwise start with the old one's offsets."""
    place = on_disk(tmp_path)
    place.append(5)
    place.commit()
    place.log.flush()
    place.checkpoint()
    place.directory.forget([KEY])
    place.kill()
    directory = LogDirectory(QuickDisk(), str(tmp_path))
    left = directory.left(KEY)
    assert (left.recovery_point, left.high_watermark, left.log_start_offset, left.cleaned_up_to) == (0, 0, 0, 0)


def test_checkpoints_keep_what_is_known_of_logs_that_are_not_open(tmp_path: Path) -> None:
    directory = LogDirectory(QuickDisk(), str(tmp_path))
    directory.checkpoint(recovery_points={KEY: 5}, high_watermarks={KEY: 4}, log_starts={KEY: 3})
    other = ("other", 1)
    directory.checkpoint(recovery_points={other: 9}, high_watermarks={other: 9}, log_starts={other: 9})
    directory.close(clean=False)
    left = LogDirectory(QuickDisk(), str(tmp_path)).left(KEY)
    assert (left.recovery_point, left.high_watermark, left.log_start_offset) == (5, 4, 3)


def test_checkpoint_written_late_does_not_undo_a_later_one(tmp_path: Path) -> None:
    """It was begun before a truncation, which made durable that less is synced: what is written next there is not."""
    place = on_disk(tmp_path)
    directory = place.directory
    late = directory.begin_checkpoint({KEY: 9}, {KEY: 9}, {KEY: 0})
    directory.lower_checkpoints(KEY, 3)
    late()
    written = decode_offsets((tmp_path / files.RECOVERY_POINTS).read_bytes())
    assert written == {KEY: 3}
    assert decode_offsets((tmp_path / files.LOG_STARTS).read_bytes()) == {KEY: 0}


def test_checkpoint_that_was_begun_and_never_written_is_written_by_the_next(tmp_path: Path) -> None:
    """A node that stops does not wait for its upkeep."""
    directory = on_disk(tmp_path).directory
    directory.begin_checkpoint({KEY: 9}, {KEY: 9}, {KEY: 0})
    directory.checkpoint(recovery_points={KEY: 9}, high_watermarks={KEY: 9}, log_starts={KEY: 0})
    assert decode_offsets((tmp_path / files.RECOVERY_POINTS).read_bytes()) == {KEY: 9}


# Failing.


def append_and_flush(place: Place) -> None:
    place.append()
    place.log.flush()


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_the_first_error_takes_the_directory_offline_for_good(operation: str) -> None:
    """KAFKA-10778: nothing is tried again; an append that followed would leave a hole."""
    place = in_memory()
    place.append()
    disk = place.disk
    assert isinstance(disk, SimDisk)
    disk.faults = [Fault(EIO, (operation,), rate=1.0)]
    with recording() as events, pytest.raises(Refused) as refused:
        append_and_flush(place)
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    assert "directory.offline" in names(events)
    disk.faults = []
    for attempt in (place.append, place.log.flush, lambda: place.log.read(0, 1, 1), place.log.roll, place.log.close):
        with pytest.raises(Refused) as refused:
            attempt()
        assert refused.value.error is Error.KAFKA_STORAGE_ERROR


def test_a_failed_directory_is_not_marked_as_cleanly_left() -> None:
    place = in_memory()
    place.directory.fail(OSError(errno.EIO, "broken"), "test")
    place.directory.close(clean=True)
    assert not place.disk.exists(f"{place.root}/{files.CLEAN_SHUTDOWN}")


def test_it_is_said_once_and_the_owner_is_told() -> None:
    told: list[LogDirectory] = []
    directory = LogDirectory(SimDisk(SimClock(), Random(1)), "/d", told.append)
    with recording() as events:
        directory.fail(OSError(errno.EIO, "broken"), "append")
        directory.fail(OSError(errno.ENOSPC, "full"), "flush")
    assert names(events) == ["directory.offline"]
    assert told == [directory]
    assert "broken" in str(directory.failure)


def test_too_many_open_files_do_not_condemn_the_disk(tmp_path: Path) -> None:
    """Nothing was touched: when other files are closed the directory is as good as before."""
    directory = LogDirectory(LocalDisk(), str(tmp_path))
    with pytest.raises(Refused, match="ulimit"), directory.guard("open a log"):
        raise OSError(errno.EMFILE, "Too many open files")
    directory.check_online()
