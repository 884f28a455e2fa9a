"""Reading from a log on the real disk, next to bare preads of the same bytes."""

import os
import random
from tempfile import TemporaryDirectory

from bench.append import new_log
from bench.batches import batch_filling, run_of
from bench.measure import profiled, turn_about
from bench.report import Section, Table
from bench.sizes import KiB, MiB, Sizes
from ottla import kernel
from ottla.storage.partition_log import PartitionLog

BATCH_BYTES = 16 * KiB
FETCH_BYTES = 1 * MiB


def run(sizes: Sizes) -> Section:
    section = Section(
        "Read",
        "`PartitionLog.read` from a log of 16 KB batches that lies in the page cache. `find` stops at the slice of the "
        "file, which is all that a fetch by sendfile needs; `find and read` also brings the bytes into the process. "
        "The floor is `os.pread` of the same stretches.",
    )
    table = Table("Reading", ["how", "bytes each", "find µs", "find and read µs", "MB/s", "x floor", "CPU s/GB"])
    section.tables.append(table)
    batch = batch_filling(BATCH_BYTES, 100)
    with TemporaryDirectory() as path, new_log(path) as log:
        count = sizes.append_bytes // len(batch)
        log.append_replicated(run_of(batch, count, 0))
        end, records = log.state.end_offset, kernel.read_header(batch).count
        step = FETCH_BYTES // len(batch) * records
        whole = FETCH_BYTES // len(batch) * len(batch)
        picks = random.Random(2)
        anywhere = [picks.randrange(end) for _ in range(sizes.random_reads)]
        _measure("in order, 1 MiB at a time", log, list(range(0, end, step)), whole, table, sizes)
        _measure("in order, one batch at a time", log, list(range(0, end, records)), len(batch), table, sizes)
        _measure("anywhere, one batch", log, anywhere, len(batch), table, sizes)
        section.profiles["find, anywhere"] = profiled(
            lambda: _find_all(log, anywhere, len(batch)), calls=len(anywhere), unit="read"
        )
    section.findings.append(
        "Finding is a halving of the index down to one page, a read of that page and of some headers after the entry; "
        "it does not depend on how much is then sent."
    )
    return section


def _measure(name: str, log: PartitionLog, offsets: list[int], size: int, table: Table, sizes: Sizes) -> None:
    slices = [log.read(offset, size, log.state.end_offset) for offset in offsets]
    stretches = [(found.position, found.length) for found in slices]
    path = log.here.of(log.state.active).log.path
    fd = os.open(path, os.O_RDONLY)
    try:
        costs = turn_about(
            {
                "find": lambda: _find_all(log, offsets, size),
                "read": lambda: _read_all(log, offsets, size),
                "floor": lambda: _pread_all(fd, stretches),
            },
            sizes.rounds,
            sizes.round_seconds,
        )
    finally:
        os.close(fd)
    total = sum(length for _, length in stretches)
    find, read, floor = (cost.per(len(offsets)) for cost in costs.values())
    each = total // len(offsets)
    table.add(
        *(name, each, find.wall_us, read.wall_us),
        *(each / read.wall / 1e6, read.wall / floor.wall, read.cpu / each * 1e9),
    )


def _find_all(log: PartitionLog, offsets: list[int], size: int) -> None:
    end = log.state.end_offset
    for offset in offsets:
        log.read(offset, size, end)


def _read_all(log: PartitionLog, offsets: list[int], size: int) -> None:
    end = log.state.end_offset
    for offset in offsets:
        log.read(offset, size, end).read()


def _pread_all(fd: int, stretches: list[tuple[int, int]]) -> None:
    for position, length in stretches:
        os.pread(fd, length, position)
