"""What opening a log that was closed cleanly costs."""

import os
import random
from pathlib import Path

from ottla.config import Config
from ottla.io.clock import SystemClock
from ottla.io.disk import LocalDisk, LocalFile
from ottla.kernel import Record, build_batch
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog

BATCHES = 500


class CountingFile(LocalFile):
    read_bytes = 0

    def read(self, position: int, length: int) -> bytes:
        data = super().read(position, length)
        CountingFile.read_bytes += len(data)
        return data


class CountingDisk(LocalDisk):
    def open(self, path: str, *, create: bool = False, writable: bool = True) -> CountingFile:
        opened = super().open(path, create=create, writable=writable)
        return CountingFile(path, os.dup(opened.fileno()))


def opened(directory: LogDirectory) -> PartitionLog:
    return PartitionLog(directory, "topic", 0, Config.of(), SystemClock(), random.Random(1))


def append(log: PartitionLog, offsets: range) -> None:
    now_ms = SystemClock().wall_ms()
    for offset in offsets:
        log.append_replicated(build_batch([Record(offset, now_ms, b"key", bytes(1000))], leader_epoch=0, producer_id=1))


def leave_cleanly(held: LogDirectory, log: PartitionLog, end_offset: int) -> None:
    log.state.advance_high_watermark(end_offset)
    log.close()
    offsets = {log.key: end_offset}
    held.checkpoint(recovery_points=offsets, high_watermarks=offsets, log_starts={log.key: 0})
    held.close(clean=True)


def test_clean_open_does_not_read_the_active_segment_again(tmp_path: Path) -> None:
    """The snapshot of the shutdown stands at the log's end: a segment of 1 GiB must not be read to find nothing."""
    held = LogDirectory(LocalDisk(), str(tmp_path))
    log = opened(held)
    append(log, range(BATCHES))
    leave_cleanly(held, log, BATCHES)

    held = LogDirectory(CountingDisk(), str(tmp_path))
    CountingFile.read_bytes = 0
    log = opened(held)
    assert log.state.end_offset == BATCHES
    assert log.state.producers.by_id[1].last_data_offset == BATCHES - 1
    assert log.state.size > 500_000
    assert CountingFile.read_bytes < 50_000


def test_recovery_does_not_read_again_what_was_closed_cleanly(tmp_path: Path) -> None:
    """A node that crashes soon after a start must not pay for all that is in its active segments."""
    held = LogDirectory(LocalDisk(), str(tmp_path))
    log = opened(held)
    append(log, range(BATCHES))
    leave_cleanly(held, log, BATCHES)
    held = LogDirectory(LocalDisk(), str(tmp_path))
    log = opened(held)
    append(log, range(BATCHES, BATCHES + 20))
    expected = [tuple(found) for at in range(0, BATCHES + 20, 7) if (found := log.here.of(log.state.active).locate(at))]
    held.close(clean=False)

    held = LogDirectory(CountingDisk(), str(tmp_path))
    CountingFile.read_bytes = 0
    log = opened(held)
    assert log.state.end_offset == BATCHES + 20
    assert log.state.producers.by_id[1].last_data_offset == BATCHES + 19
    assert CountingFile.read_bytes < 80_000
    assert [tuple(f) for at in range(0, BATCHES + 20, 7) if (f := log.here.of(log.state.active).locate(at))] == expected
