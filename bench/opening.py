"""Opening many partitions at the start of a node: time, files held open, memory; each in a fresh process."""

import asyncio
import json
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.batches import Place, batch_filling
from bench.measure import open_files, profiled, resident_bytes, timed
from bench.recovery import fill
from bench.report import Section, Table
from bench.sizes import KiB, MiB, Sizes
from ottla.config import Config
from ottla.core.log import files
from ottla.io.clock import SystemClock
from ottla.io.disk import LocalDisk
from ottla.storage.partition_log import PartitionLog
from ottla.storage.store import LogStore

BATCHES = 10
BATCH_BYTES = 16 * KiB
CLUSTER, NODE = "bench", 1


def run(sizes: Sizes) -> Section:
    section = Section(
        "Opening partitions",
        f"`LogStore.open` on one directory of partitions with {BATCHES} batches of 16 KB each, in a fresh process, "
        "files in the page cache. The floor is a loop that lists each directory with sizes and reads the first 4 KiB "
        "of its log. `crash after a clean start`: recovery points are known, no byte is new. `crash, nothing synced`: "
        "every byte is read again.",
    )
    table = Table(
        f"Opening {sizes.partitions:,} partitions",
        ["left by", "s", "CPU s", "µs/partition", "x floor", "files open", "MiB more", "KiB/partition"],
    )
    section.tables.append(table)
    with TemporaryDirectory() as root:
        path = f"{root}/logs"
        asyncio.run(_make(path, sizes.partitions))
        rounds = min(sizes.rounds, 3)
        _add(table, "clean shutdown", [_in_fresh_process(path, "close") for _ in range(rounds)])
        _in_fresh_process(path, "crash")
        _add(table, "crash after a clean start", [_in_fresh_process(path, "crash") for _ in range(rounds)])
        (Path(path) / files.RECOVERY_POINTS).unlink()
        _add(table, "crash, nothing synced", [_in_fresh_process(path, "crash") for _ in range(rounds)])
        section.profiles["opening, nothing synced"] = _profile(path, sizes.partitions)
    section.findings += [
        "A log that is synced to its end holds no file open until somebody uses it; one that may not be holds its "
        "active segment open, because the system forgets about a write that failed when nobody has the file open.",
        "The rest over the floor is Python, a trip to a thread, and half a dozen more small files per partition.",
    ]
    return section


def _profile(path: str, partitions: int) -> str:
    place = Place(path)
    logs: list[PartitionLog] = []
    work = partial(logs.extend, (place.log(partition=partition) for partition in range(partitions)))
    found = profiled(work, calls=partitions, unit="partition", lines=18)
    place.leave(*logs, clean=False)
    return found


async def _make(path: str, partitions: int) -> None:
    batch = batch_filling(BATCH_BYTES, 100)
    store = await _opened(path)
    for partition in range(partitions):
        log = store.create("bench", partition, bytes([1] * 16), Config.of())
        fill(log, batch, BATCHES)
        log.state.advance_high_watermark(log.state.end_offset)
    await store.close()
    store.disk.close()  # type: ignore[attr-defined]


async def _opened(path: str) -> LogStore:
    store = LogStore(LocalDisk(), SystemClock(), random.Random(1))
    await store.open([path], CLUSTER, NODE, _defaults)
    return store


def _defaults(_: str, config: Config = Config.of()) -> Config:  # noqa: B008 - one for all topics, as a broker has it
    return config


def _add(table: Table, left_by: str, found: list[dict[str, Any]]) -> None:
    best = {key: min(one[key] for one in found) for key in found[0]}
    partitions = best["partitions"]
    table.add(
        *(left_by, best["wall"], best["cpu"], best["wall"] / partitions * 1e6, best["wall"] / best["floor"]),
        *(best["files"], best["bytes"] / MiB, best["bytes"] / partitions / KiB),
    )


def _in_fresh_process(path: str, ending: str) -> dict[str, Any]:
    """Open everything; then shut down (`close`) or end abruptly (`crash`)."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.opening", path, ending],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _look_at(path: str) -> None:
    """The floor: names, sizes, and one read of each log."""
    for directory in os.scandir(path):
        if directory.is_dir():
            for entry in os.scandir(directory):
                if entry.stat().st_size and entry.name.endswith(".log"):
                    fd = os.open(entry, os.O_RDONLY)
                    os.pread(fd, 4 * KiB, 0)
                    os.close(fd)


def _measure(path: str, ending: str) -> None:
    floor = timed(lambda: _look_at(path))
    files_before, bytes_before = open_files(), resident_bytes()
    stores: list[LogStore] = []
    cost = timed(lambda: stores.append(asyncio.run(_opened(path))))
    found = {
        "wall": cost.wall,
        "cpu": cost.cpu,
        "floor": floor.wall,
        "partitions": len(stores[0].logs),
        "files": open_files() - files_before,
        "bytes": resident_bytes() - bytes_before,
    }
    print(json.dumps(found), flush=True)
    if ending == "close":
        asyncio.run(stores[0].close())
        stores[0].disk.close()  # type: ignore[attr-defined]
    else:
        os._exit(0)


if __name__ == "__main__":
    _measure(*sys.argv[1:])
