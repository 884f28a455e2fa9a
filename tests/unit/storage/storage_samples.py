"""A partition that can be closed, killed and opened again, and batches to put into it."""

import os
from pathlib import Path
from random import Random

from ottla.config import Config
from ottla.core.log import files
from ottla.core.log.checkpoints import encode_offsets
from ottla.core.log.producers import AppendOrigin
from ottla.io.disk import LocalDisk, LocalFile
from ottla.io.ports import Disk
from ottla.kernel import (
    ControlType,
    Record,
    build_batch,
    build_end_txn_marker,
    read_header,
    read_records,
    scan,
)
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.disk import SimDisk
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import Appended, PartitionLog
from ottla.storage.slices import Slice

NOW = SimClock().wall_ms()
TOPIC, PARTITION = "topic", 0
KEY = (TOPIC, PARTITION)


def config(**overrides: object) -> Config:
    """`config(segment_ms=5)` sets `segment.ms`; segments may be tiny, and every batch is indexed unless said."""
    names = {name.replace("_", "."): str(value) for name, value in overrides.items()}
    names.setdefault("index.interval.bytes", "0")
    if "segment.bytes" in names:
        names["internal.segment.bytes"] = names.pop("segment.bytes")
    return Config.of(names, broker={"log.cleaner.dedupe.buffer.size": "100000"})


class Place:
    """One log directory with one partition in it."""

    def __init__(self, disk: Disk, root: str, clock: SimClock | None = None, **settings: object) -> None:
        self.disk = disk
        self.root = root
        self.clock = clock or SimClock()
        self.config = config(**settings)
        self.path = f"{root}/{TOPIC}-{PARTITION}"
        self.open()

    def open(self) -> PartitionLog:
        self.directory = LogDirectory(self.disk, self.root)
        self.log = PartitionLog(self.directory, TOPIC, PARTITION, self.config, self.clock, Random(1))
        return self.log

    def checkpoint(self) -> None:
        state = self.log.state
        self.directory.checkpoint(
            recovery_points={KEY: state.recovery_point},
            high_watermarks={KEY: state.high_watermark},
            log_starts={KEY: state.log_start_offset},
        )

    def close(self) -> None:
        """As a node that stops."""
        self.log.close()
        self.checkpoint()
        self.directory.close(clean=True)

    def kill(self) -> None:
        """As a process that dies: what it had in memory is gone, what it wrote is there."""
        self.log.here.close()
        self.directory.close(clean=False)

    def reopen(self, *, clean: bool) -> PartitionLog:
        if clean:
            self.close()
        else:
            self.kill()
        return self.open()

    # Shortcuts.

    def append(self, count: int = 1, *, leader_epoch: int = 0, **more: object) -> Appended:
        return self.log.append(bytearray(batch(count, **more)), leader_epoch)  # type: ignore[arg-type]

    def end_txn(self, producer_id: int, *, commit: bool, epoch: int = 0, timestamp: int = NOW) -> Appended:
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        data = build_end_txn_marker(kind, 0, timestamp=timestamp, producer_id=producer_id, producer_epoch=epoch)
        return self.log.append(bytearray(data), 0, origin=AppendOrigin.COORDINATOR)

    def commit(self) -> None:
        """Everything is below the high watermark."""
        self.log.state.advance_high_watermark(self.log.state.end_offset)

    def offsets(self) -> list[int]:
        """Of all records, as a reader finds them who follows the log from its start to its end."""
        log, found = self.log, list[int]()
        offset, end = log.state.log_start_offset, log.state.end_offset
        while offset < end:
            records, next_offset = records_in(log.read(offset, 10_000, end))
            found += [record.offset for record in records if record.offset >= offset]
            if next_offset is None:
                break
            offset = next_offset
        return found

    def names(self) -> list[str]:
        return self.disk.list(self.path)

    def bases(self) -> list[int]:
        return [segment.base_offset for segment in self.log.state.segments]

    def file(self, base_offset: int, kind: str = files.LOG, suffix: str = "") -> str:
        return f"{self.path}/{files.file_name(base_offset, kind, suffix)}"

    def read_bytes(self, path: str) -> bytes:
        file = self.disk.open(path, writable=False)
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def write_bytes(self, path: str, data: bytes) -> None:
        file = self.disk.open(path, create=True)
        try:
            file.truncate(0)
            file.write(0, [data])
        finally:
            file.close()

    def write_offsets(self, name: str, offset: int) -> None:
        """A checkpoint of the directory, as somebody else might have left it."""
        self.write_bytes(f"{self.root}/{name}", encode_offsets({KEY: offset}))


class QuickFile(LocalFile):
    def sync(self) -> None:
        """What a sync is worth is shown on the simulated disk; here it would only take time."""


class QuickDisk(LocalDisk):
    """The real file system, which is not asked to be durable."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> LocalFile:
        opened = super().open(path, create=create, writable=writable)
        return QuickFile(path, os.dup(opened.fileno()))

    def sync_directory(self, path: str) -> None:
        if not self.exists(path):
            raise FileNotFoundError(path)


def on_disk(tmp_path: Path, **settings: object) -> Place:
    return Place(QuickDisk(threads=2), str(tmp_path), SimClock(), **settings)


def in_memory(**settings: object) -> Place:
    """On the simulated disk without faults: fast, and under virtual time."""
    clock = SimClock()
    return Place(SimDisk(clock, Random(1)), "/d", clock, **settings)


def batch(
    count: int = 1,
    *,
    timestamp: int = NOW,
    step: int = 0,
    key: bytes = b"key",
    value: bytes | None = b"value",
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
) -> bytes:
    """As a producer sends it; the timestamp grows by `step` from record to record."""
    records = [Record(n, timestamp + n * step, key, value) for n in range(count)]
    if producer_id < 0:
        return build_batch(records)
    return build_batch(
        records,
        transactional=transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def numbered(offset: int, count: int = 1, *, timestamp: int = NOW, leader_epoch: int = 0, key: bytes = b"key") -> bytes:
    """As a leader sends it to a follower."""
    return build_batch([Record(offset + n, timestamp, key, b"value") for n in range(count)], leader_epoch=leader_epoch)


def records_in(found: Slice) -> tuple[list[Record], int | None]:
    """The records of the whole batches in a slice, and the offset after them."""
    data = found.read()
    records, position = list[Record](), 0
    headers = scan(data).headers
    for header in headers:
        assert read_header(data, position) == header
        records += [] if header.is_control else read_records(data, header, position)
        position += header.size
    return records, headers[-1].next_offset if headers else None
