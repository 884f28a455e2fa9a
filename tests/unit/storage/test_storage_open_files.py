"""How many files a log holds open."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.config import Config
from ottla.io.clock import SystemClock
from ottla.io.disk import LocalDisk
from ottla.kernel import Record, build_batch
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog

SEGMENTS = 150


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    directory = LogDirectory(LocalDisk(), str(tmp_path))
    log = PartitionLog(directory, "topic", 0, Config.of(), SystemClock(), random.Random(1))
    for offset in range(SEGMENTS):
        log.append_replicated(build_batch([Record(offset, offset, b"key", b"value")], leader_epoch=0))
        log.roll()
        if offset % 10 == 0:
            log.flush()
    yield log
    log.close()


def open_files_below(directory: Path) -> int:
    links = Path("/proc/self/fd").iterdir()
    return sum(os.path.realpath(link).startswith(str(directory)) for link in links)


def test_long_log_holds_few_files_open_however_it_is_used(log: PartitionLog, tmp_path: Path) -> None:
    """Otherwise one look-up by time in a long log takes all descriptors, and the directory goes offline for it."""
    for offset in range(SEGMENTS):
        assert log.read(offset, 1000, SEGMENTS).read()
        found = log.find_time(offset)
        assert found is not None
        assert found.offset == offset
    assert log.state.end_offset == SEGMENTS
    assert open_files_below(tmp_path) < 150


def test_slice_can_be_read_after_its_segment_was_let_go(log: PartitionLog) -> None:
    """A slow consumer holds on to it while others read everywhere."""
    kept = log.read(0, 1000, SEGMENTS)
    expected = kept.read()
    for offset in range(SEGMENTS):
        log.read(offset, 1000, SEGMENTS).read()
    assert kept.read() == expected


def test_segments_that_are_not_synced_are_never_let_go(tmp_path: Path) -> None:
    """A sync on a file opened anew may miss the error that the first one was to report."""
    directory = LogDirectory(LocalDisk(), str(tmp_path))
    log = PartitionLog(directory, "topic", 0, Config.of(), SystemClock(), random.Random(1))
    for offset in range(SEGMENTS):
        log.append_replicated(build_batch([Record(offset, offset, b"key", b"value")], leader_epoch=0))
        log.roll()
    unsynced = [log.here.of(segment) for segment in log.state.segments[:-1]]
    assert [log.here.of(segment) for segment in log.state.segments[:-1]] == unsynced
    assert open_files_below(tmp_path) > SEGMENTS
    unsynced.clear()
    log.flush()
    for offset in range(SEGMENTS, SEGMENTS + 20):
        log.append_replicated(build_batch([Record(offset, offset, b"key", b"value")], leader_epoch=0))
        log.roll()
    assert open_files_below(tmp_path) < SEGMENTS
    log.close()
