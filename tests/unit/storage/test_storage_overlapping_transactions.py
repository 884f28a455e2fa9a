"""The transaction index of transactions that overlap, read back from disk."""

import random
from pathlib import Path

import pytest

from ottla.config import Config
from ottla.core.log.indexes import AbortedTxn
from ottla.core.log.producers import AppendOrigin
from ottla.io.clock import SystemClock
from ottla.io.disk import LocalDisk
from ottla.kernel import ControlType, Record, build_batch, build_end_txn_marker
from ottla.observe.trace import names, recording
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog

NOW = SystemClock().wall_ms()


def opened(directory: Path) -> PartitionLog:
    held = LogDirectory(LocalDisk(), str(directory))
    return PartitionLog(held, "topic", 0, Config.of(), SystemClock(), random.Random(1))


def begin(log: PartitionLog, producer_id: int) -> None:
    record = Record(0, NOW, b"key", b"value")
    batch = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    log.append(bytearray(batch), 0)


def abort(log: PartitionLog, producer_id: int) -> None:
    marker = build_end_txn_marker(ControlType.ABORT, 0, timestamp=NOW, producer_id=producer_id, producer_epoch=0)
    log.append(bytearray(marker), 0, origin=AppendOrigin.COORDINATOR)


@pytest.mark.parametrize("closed", [True, False])
def test_inner_transaction_is_believed(tmp_path: Path, closed: bool) -> None:
    """When it ended the outer one was open, so the last stable offset that was noted lies before its beginning."""
    log = opened(tmp_path)
    begin(log, 1)
    begin(log, 2)
    abort(log, 2)
    if closed:
        log.close()
    log.directory.close(clean=closed)

    log = opened(tmp_path)
    with recording() as events:
        assert log.aborted_transactions(0, log.state.end_offset) == [AbortedTxn(2, 1, 2, 0)]
    assert "txnindex.rebuilt" not in names(events)
    log.directory.close(clean=False)
