"""Opening a log: after a crash, after a clean shutdown, and after a crash that followed one."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from crc32c import crc32c

from bench.batches import Place, batch_filling, run_of
from bench.measure import Cost, lowest, profiled, timed
from bench.report import Section, Table, growth
from bench.sizes import KiB, MiB, Sizes
from ottla.config import Config
from ottla.storage.partition_log import PartitionLog

BATCH_BYTES = 16 * KiB
SEGMENT_BATCHES = 4
CONFIG = Config.of({"segment.bytes": str(2**31 - 1)})  # So that a log of 1 GiB is one segment.
SMALL_APPEND_BATCHES = 10


def run(sizes: Sizes) -> Section:
    section = Section(
        "Recovery",
        "Opening one log of 16 KB batches with 100-byte records from the page cache. `unclean`: nothing is known to be "
        "synced, so every byte is read, every CRC compared and every index made anew; its floor is a loop of `pread` "
        "and `crc32c` over the same file. `clean`: closed by a shutdown. `clean, then crash`: closed cleanly, "
        f"opened, {SMALL_APPEND_BATCHES} batches appended, crashed.",
    )
    with TemporaryDirectory() as path:
        section.tables.append(_by_size(path, sizes, section))
    with TemporaryDirectory() as path:
        section.tables.append(_by_segments(path, sizes))
    section.findings += _findings(*section.tables)
    return section


def _findings(by_size: Table, by_segments: Table) -> list[str]:
    small, large = by_size.rows[0], by_size.rows[-1]
    clean, again = by_size.columns.index("clean ms"), by_size.columns.index("clean, then crash ms")
    few, many = by_segments.rows[0], by_segments.rows[-1]
    per_segment_us = (many[1] - few[1]) / (many[0] - few[0]) * 1e3  # type: ignore[operator]
    return [
        f"Clean, {small[0]} to {large[0]}: {growth(small[clean], large[clean])}. Nothing is read but the end of the "
        "last segment and the newest snapshot.",
        f"Closed segments, clean or not: {per_segment_us:.0f} µs each. Their names and sizes are listed and parsed; "
        "none of their files is opened or read.",
        f"A crash after a clean start, {small[0]} to {large[0]} in the active segment: "
        f"{growth(small[again], large[again])}. The segment of the recovery point is read whole, as Kafka does, "
        "because its indexes may be half written; below the recovery point no CRC is compared. `segment.bytes` bounds "
        "it. To be flat, recovery would have to begin at the recovery point and keep the index entries below it.",
        "Unclean: the floor sums 1 MiB at a time; per batch there is also the header, the order of offsets, the "
        "producer state and an index entry, all in Python (profile below).",
    ]


def _by_size(root: str, sizes: Sizes, section: Section) -> Table:
    table = Table(
        "One segment, growing",
        [
            *("log", "unclean s", "CPU s", "MB/s", "x floor"),
            *("clean ms", "CPU ms", "clean, then crash ms", "CPU ms"),
        ],
    )
    batch = batch_filling(BATCH_BYTES, 100)
    for size in sizes.recovery_bytes:
        path = f"{root}/{size}"
        place = Place(path)
        log = place.log(config=CONFIG)
        fill(log, batch, size // len(batch))
        written = log.state.size
        place.leave(log, clean=False)
        unclean = lowest([_crashed(path) for _ in range(2)])
        floor = lowest([timed(lambda path=path: _read_bare(path)) for _ in range(2)])  # type: ignore[misc]
        if size == min(sizes.recovery_bytes):
            section.profiles["unclean open"] = profiled(
                lambda path=path: _crashed(path),  # type: ignore[misc]
                calls=written // len(batch),
                unit="batch",
            )
        place, log, _ = _opened(path)
        place.leave(log, clean=True)
        clean, small = _clean_and_small(path, batch, min(sizes.rounds, 3))
        table.add(
            *(f"{size // MiB:,} MiB", unclean.wall, unclean.cpu, written / unclean.wall / 1e6),
            *(unclean.wall / floor.wall, clean.wall * 1e3, clean.cpu * 1e3, small.wall * 1e3, small.cpu * 1e3),
        )
    return table


def _by_segments(root: str, sizes: Sizes) -> Table:
    table = Table(
        f"Many closed segments of {SEGMENT_BATCHES} batches",
        ["closed segments", "clean ms", "CPU ms", "clean, then crash ms", "CPU ms"],
    )
    batch = batch_filling(BATCH_BYTES, 100)
    for segments in sizes.closed_segments:
        path = f"{root}/{segments}"
        place = Place(path)
        log = place.log(config=CONFIG)
        for _ in range(segments):
            fill(log, batch, SEGMENT_BATCHES)
            log.roll()
        place.leave(log, clean=True)
        clean, small = _clean_and_small(path, batch, sizes.rounds)
        table.add(segments, clean.wall * 1e3, clean.cpu * 1e3, small.wall * 1e3, small.cpu * 1e3)
    return table


def _clean_and_small(path: str, batch: bytes, rounds: int) -> tuple[Cost, Cost]:
    """The costs of opening a log that was closed cleanly, and of opening it after a crash soon after."""
    clean, small = [], []
    for _ in range(rounds):
        place, log, cost = _opened(path)
        assert place.held.was_clean
        clean.append(cost)
        fill(log, batch, SMALL_APPEND_BATCHES)
        place.leave(log, clean=False)
        place, log, cost = _opened(path)
        assert not place.held.was_clean
        small.append(cost)
        place.leave(log, clean=True)
    return lowest(clean), lowest(small)


def _crashed(path: str) -> Cost:
    """Open what a crash left, and leave it in the same state."""
    place, log, cost = _opened(path)
    assert not place.held.was_clean
    place.leave(log, clean=False)
    return cost


def _opened(path: str) -> tuple[Place, PartitionLog, Cost]:
    place = Place(path)
    opened: list[PartitionLog] = []
    cost = timed(lambda: opened.append(place.log(config=CONFIG)))
    return place, opened[0], cost


def _read_bare(path: str) -> None:
    """The floor: every byte read and summed."""
    for file in Path(path).glob("*/*.log"):
        fd = os.open(file, os.O_RDONLY)
        position = 0
        while data := os.pread(fd, 1 * MiB, position):
            crc32c(data)
            position += len(data)
        os.close(fd)


def fill(log: PartitionLog, batch: bytes, batches: int) -> None:
    """Append as a follower does, without checking the records, which is quick."""
    at_once = 64
    for done in range(0, batches, at_once):
        log.append_replicated(run_of(batch, min(at_once, batches - done), log.state.end_offset))
