"""Ottla's side of a comparison: logs opened in a data directory, and what they serve to a consumer."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ottla.config import Config
from ottla.core.log import files
from ottla.io.clock import SystemClock
from ottla.io.disk import LocalDisk
from ottla.kernel import BatchHeader, ControlType, read_end_txn_marker, read_records, scan
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog
from peers import scenario
from peers.client import Read
from peers.written import SETTINGS

COMPACTED = ("compacted", "compacted-transactions", "purged")


def config_of(topic: str, overrides: Mapping[str, str] | None = None) -> Config:
    """The settings that a topic of the scenario has in Kafka, once it is compacted."""
    compaction = {"cleanup.policy": "compact"} if topic in COMPACTED else {}
    return Config.of(scenario.TOPICS[topic] | compaction | dict(overrides or {}), broker=SETTINGS)


class DataDirectory:
    """A data directory held by Ottla."""

    def __init__(self, path: Path) -> None:
        self.directory = LogDirectory(LocalDisk(), str(path))
        self.logs: dict[str, PartitionLog] = {}

    def open(self, topic: str, partition: int = 0, config: Config | None = None) -> PartitionLog:
        """Open a log; alone in the world, so that everything written counts as replicated."""
        config = config or config_of(topic)
        log = PartitionLog(self.directory, topic, partition, config, SystemClock(), random.Random(1))
        log.log.advance_high_watermark(log.log.end_offset)
        self.logs[log.name] = log
        return log

    def open_all(self) -> None:
        for topic, partition in scenario.NAMES:
            self.open(topic, partition)

    def close(self) -> None:
        """As a node does that is stopped: logs synced, checkpoints and the mark of a clean shutdown written."""
        directory = self.directory
        for log in self.logs.values():
            log.log.advance_high_watermark(log.log.end_offset)
            log.close()
            directory.recovery_points[log.key] = log.log.recovery_point
            directory.high_watermarks[log.key] = log.log.high_watermark
            directory.log_starts[log.key] = log.log.log_start_offset
        directory.write_offsets(files.RECOVERY_POINTS, directory.recovery_points)
        directory.write_offsets(files.HIGH_WATERMARKS, directory.high_watermarks)
        directory.write_offsets(files.LOG_STARTS, directory.log_starts)
        directory.close(clean=True)

    def crash(self) -> None:
        """As a process that is killed: files stay as they are."""
        self.directory.close(clean=False)


@contextmanager
def data_directory(path: Path) -> Iterator[DataDirectory]:
    """A data directory, closed cleanly at the end of the block."""
    opened = DataDirectory(path)
    try:
        yield opened
    except BaseException:
        opened.crash()
        raise
    opened.close()


def batches(log: PartitionLog, upper_offset: int, max_bytes: int = 3000) -> Iterator[tuple[BatchHeader, bytes]]:
    """What fetches from the log start on return, one after the other."""
    offset = log.log.log_start_offset
    while offset < upper_offset:
        data = log.read(offset, max_bytes, upper_offset).read()
        scanned = scan(data)
        if not scanned.headers:
            assert not data, f"{log.name}: a fetch at {offset} brought {len(data)} bytes and no batch"
            return
        position = 0
        for header in scanned.headers:
            yield header, data[position : position + header.size]
            position += header.size
            offset = header.next_offset


def served(log: PartitionLog) -> list[Read]:
    """All records, as a consumer at read_uncommitted gets them."""
    return [
        Read(*record)
        for header, batch in batches(log, log.log.high_watermark)
        if not header.is_control
        for record in read_records(batch, header)
        if record.offset >= log.log.log_start_offset
    ]


def served_committed(log: PartitionLog) -> list[Read]:
    """The records that a consumer at read_committed gets: it drops what the list of aborted transactions tells it."""
    stable = log.log.last_stable_offset
    aborted = sorted(log.aborted_transactions(log.log.log_start_offset, stable), key=lambda txn: txn.first_offset)
    undone: set[int] = set()
    records = []
    for header, batch in batches(log, stable):
        while aborted and aborted[0].first_offset <= header.last_offset:
            undone.add(aborted.pop(0).producer_id)
        if header.is_control:
            if header.count and read_end_txn_marker(batch).control_type is ControlType.ABORT:
                undone.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in undone):
            records += [
                Read(*record) for record in read_records(batch, header) if record.offset >= log.log.log_start_offset
            ]
    return records
