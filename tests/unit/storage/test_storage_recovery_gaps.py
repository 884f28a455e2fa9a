"""Recovery and offsets that are missing between segments: legal where the cleaner has been, a loss elsewhere."""

import random
from pathlib import Path

import pytest

from ottla.config import Config
from ottla.core.log import files
from ottla.core.log.checkpoints import encode_offsets
from ottla.io.clock import SystemClock
from ottla.io.disk import LocalDisk
from ottla.kernel import Record, build_batch
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog


def batch(offset: int) -> bytes:
    return build_batch([Record(offset, 1_700_000_000_000 + offset, b"key", b"value")], leader_epoch=0)


def end_after_recovery(directory: Path, policy: str) -> int:
    held = LogDirectory(LocalDisk(), str(directory))
    config = Config.of({"cleanup.policy": policy})
    log = PartitionLog(held, "topic", 0, config, SystemClock(), random.Random(1))
    held.close(clean=False)
    return log.state.end_offset


@pytest.fixture
def gapped(tmp_path: Path) -> Path:
    """Offsets 0 and 10, in a segment each; not closed cleanly."""
    partition = tmp_path / "topic-0"
    partition.mkdir()
    for offset in (0, 10):
        (partition / files.file_name(offset, files.LOG)).write_bytes(batch(offset))
    return tmp_path


def test_gap_ends_a_log_that_was_never_cleaned(gapped: Path) -> None:
    """The records between were acknowledged and lost; what follows must come from another replica in one piece."""
    assert end_after_recovery(gapped, "delete") == 1


def test_gap_ends_a_compacted_log_where_the_cleaner_has_not_been(gapped: Path) -> None:
    """Only the cleaner makes gaps between segments, and it notes how far it came before it does."""
    assert end_after_recovery(gapped, "compact") == 1


def test_gap_stays_where_the_cleaner_has_been(gapped: Path) -> None:
    """The topic was compacted once and its policy is delete now: nothing is lost, so nothing may be cut."""
    (gapped / files.CLEANER_OFFSETS).write_bytes(encode_offsets({("topic", 0): 10}))
    assert end_after_recovery(gapped, "delete") == 11
