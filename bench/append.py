"""Appending to a log on the real disk, next to a bare loop of CRC and write."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from crc32c import crc32c

from bench.batches import Place, batch_filling, batch_of, sequenced, unstamp
from bench.measure import Cost, lowest, profiled, timed
from bench.report import Section, Table, verdict
from bench.sizes import KiB, Sizes
from ottla import kernel
from ottla.config import Config
from ottla.core.log.rules import produce_rules
from ottla.kernel import Codec
from ottla.storage.partition_log import PartitionLog

BATCH_BYTES = 16 * KiB
BEYOND_AIM_US = 10.0
_AFTER_CRC = 21

LOADS: dict[str, Callable[[Codec], bytes]] = {
    "16 KB of 100-byte records": lambda codec: batch_filling(BATCH_BYTES, 100, codec),
    "16 KB of 1,000-byte records": lambda codec: batch_filling(BATCH_BYTES, 1000, codec),
    "one 100-byte record": lambda codec: batch_of(1, 100, codec),
}


def run(sizes: Sizes) -> Section:
    section = Section(
        "Append",
        "`PartitionLog.append` of batches from an idempotent producer into a new log, in the page cache (no fsync, as "
        "Kafka's defaults). The floor is a loop of `crc32c` and `os.write` over the same buffers. `check` is the "
        "kernel's validation alone: CRC, decompression, the walk over every record. `beyond` is what append takes "
        "besides that check and the bare write: planning, producer state, numbering, indexes. Bytes of MB/s and "
        "CPU s/GB are those before compression.",
    )
    table = Table(
        "Appending",
        [
            *("batch", "codec", "bytes", "records", "MB/s", "µs/batch", "CPU µs/batch", "x floor"),
            *("check µs/record", "beyond µs/batch", "CPU s/GB"),
        ],
    )
    section.tables.append(table)
    beyond = [
        _measure(name, make(codec), codec, table, sizes)
        for name, make in LOADS.items()
        for codec in (Codec.NONE, Codec.LZ4)
    ]
    section.findings += [
        f"Python beyond the check and the write, 16 KB of 100-byte records: "
        f"{verdict(beyond[0], BEYOND_AIM_US, ' µs a batch')}; the worst row: {max(beyond):.1f} µs.",
        f"The check is the {kernel.IMPLEMENTATION} kernel's. One record per batch is all fixed cost, so its `x floor` "
        "is the largest.",
    ]
    for name in ("16 KB of 100-byte records", "one 100-byte record"):
        section.profiles[f"append, {name}, uncompressed"] = _profile(LOADS[name](Codec.NONE), sizes)
    return section


def _measure(name: str, batch: bytes, codec: Codec, table: Table, sizes: Sizes) -> float:
    records = kernel.read_records(batch)
    uncompressed = len(kernel.build_batch(records))
    count = min(max(1, sizes.append_bytes // len(batch)), sizes.append_batches_max)
    batches = sequenced(batch, count)
    rules = produce_rules(Config.of())
    costs: dict[str, list[Cost]] = {"append": [], "floor": [], "write": [], "check": []}
    for _ in range(sizes.rounds):
        with TemporaryDirectory() as path, new_log(path) as log, new_file(path) as fd, new_file(path) as other:
            unstamp(batches)
            costs["check"].append(timed(lambda: _check(batches, rules)))
            costs["append"].append(timed(lambda log=log: append_all(log, batches)))  # type: ignore[misc]
            costs["floor"].append(timed(lambda fd=fd: _check_and_write_bare(fd, batches)))  # type: ignore[misc]
            costs["write"].append(timed(lambda fd=other: _write_bare(fd, batches)))  # type: ignore[misc]
    append, floor, write, check = (lowest(found).per(count) for found in costs.values())
    beyond = append.cpu_us - check.cpu_us - write.cpu_us
    table.add(
        *(name, codec.name.lower(), len(batch), len(records)),
        *(uncompressed / append.wall / 1e6, append.wall_us, append.cpu_us, append.wall / floor.wall),
        *(check.cpu_us / len(records), beyond, append.cpu / uncompressed * 1e9),
    )
    return beyond


def _profile(batch: bytes, sizes: Sizes) -> str:
    batches = sequenced(batch, min(1000, sizes.append_batches_max))
    with TemporaryDirectory() as path, new_log(path) as log:
        return profiled(lambda: append_all(log, batches), calls=len(batches), unit="batch")


def append_all(log: PartitionLog, batches: list[bytearray]) -> None:
    for batch in batches:
        log.append(batch, 0)


def _check(batches: list[bytearray], rules: kernel.ProduceRules) -> None:
    now_ms = kernel.read_header(batches[0]).max_timestamp
    for batch in batches:
        kernel.check_produced(batch, rules, now_ms)


def _check_and_write_bare(fd: int, batches: list[bytearray]) -> None:
    for batch in batches:
        crc32c(memoryview(batch)[_AFTER_CRC:])
        os.write(fd, batch)


def _write_bare(fd: int, batches: list[bytearray]) -> None:
    for batch in batches:
        os.write(fd, batch)


@contextmanager
def new_log(path: str) -> Iterator[PartitionLog]:
    place = Place(f"{path}/logs")
    log = place.log()
    try:
        yield log
    finally:
        place.leave(log, clean=False)


@contextmanager
def new_file(path: str) -> Iterator[int]:
    fd = os.open(Path(path) / os.urandom(8).hex(), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)
