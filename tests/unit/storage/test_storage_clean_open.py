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


def test_clean_open_does_not_read_the_active_segment_again(tmp_path: Path) -> None:
    """The snapshot of the shutdown stands at the log's end: a segment of 1 GiB must not be read to find nothing."""
    held = LogDirectory(LocalDisk(), str(tmp_path))
    log = opened(held)
    now_ms = SystemClock().wall_ms()
    for offset in range(BATCHES):
        log.append_replicated(build_batch([Record(offset, now_ms, b"key", bytes(1000))], leader_epoch=0, producer_id=1))
    log.log.advance_high_watermark(BATCHES)
    log.close()
    held.checkpoint(recovery_points={log.key: BATCHES}, high_watermarks={log.key: BATCHES}, log_starts={log.key: 0})
    held.close(clean=True)

    held = LogDirectory(CountingDisk(), str(tmp_path))
    CountingFile.read_bytes = 0
    log = opened(held)
    assert log.log.end_offset == BATCHES
    assert log.log.producers.by_id[1].last_data_offset == BATCHES - 1
    assert log.log.size > 500_000
    assert CountingFile.read_bytes < 50_000
