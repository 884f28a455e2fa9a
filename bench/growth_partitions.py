"""One to ten thousand partitions: the node's cost of creating, using, keeping and opening them."""

import os
import time
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.growth import HASTE, HASTY, TOPIC, Spent, compared, make_topic, running, spending, stopping
from bench.measure import timed
from bench.nodes import Node
from bench.raw_client import RawConnection, frame, produce_frame, produced_at
from bench.report import Section, Table
from bench.sizes import KiB, MiB, Sizes
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.types import NO_UUID

_DELETE_TOPICS_VERSION = 6
_VALUE = bytes(100)
_RECORDS = 10
_FLOOR_PARTITIONS = 500


def run(sizes: Sizes) -> Section:
    section = Section(
        "Growth: partitions",
        "One topic on a node of its own (`ottla serve`). CPU is user and system time of its process. `longest pause` "
        "is the longest time that somebody else waited for ApiVersions meanwhile. The floor is a loop that makes a "
        "directory with two files. Produce: 10 records of 100 bytes a request, one request at a time. `idle` is "
        f"measured with the intervals of upkeep (retention, checkpoints, cleaning) shortened {HASTE} times, and given "
        "per minute of the usual ones; every log holds records then.",
    )
    tables = _tables()
    section.tables += tables
    for partitions in sizes.growth_partitions:
        with TemporaryDirectory() as path:
            _measure(Path(path), partitions, sizes, tables)
    section.findings += _findings(*tables)
    return section


def _tables() -> list[Table]:
    making = Table(
        "Making and deleting a topic",
        [
            *("partitions", "make s", "CPU s", "CPU µs/partition", "x floor", "longest pause ms"),
            *("delete s", "CPU s", "CPU µs/partition", "longest pause ms"),
        ],
    )
    using = Table(
        "Using it",
        [
            *("partitions", "first to each CPU µs/request", "to one CPU µs/request", "to all in turn CPU µs/request"),
            *("idle CPU ms/minute", "longest pause ms", "MiB resident", "KiB/partition", "files open"),
        ],
    )
    opening = Table(
        "Stopping and starting, until the first answer",
        [
            *("partitions", "stop s", "CPU s", "clean start s", "CPU s", "CPU µs/partition"),
            *("start after kill -9 s", "CPU s", "CPU µs/partition", "MiB resident"),
        ],
    )
    return [making, using, opening]


def _measure(home: Path, partitions: int, sizes: Sizes, tables: list[Table]) -> None:
    making, using, opening = tables
    with running(home) as node:
        bare_bytes = node.resident_bytes()
        connection = RawConnection(node.port)
        with spending(node, beside=True) as made:
            make_topic(connection, partitions)
        floor = timed(lambda: _make_bare(home / "floor")).per(_FLOOR_PARTITIONS)
        produced = _produce_to_all(node, connection, partitions, sizes)
        resident, files = node.resident_bytes(), node.open_files()
        stopped = stopping(node)
    with running(home, HASTY) as node:
        clean_s, clean_cpu = node.start_s, node.cpu_s()
        idle_ms, pause_ms = _rest(node, sizes)
        node.kill()
    using.add(
        *(partitions, *produced, idle_ms, pause_ms),
        *(resident / MiB, (resident - bare_bytes) / partitions / KiB, files),
    )
    with running(home) as node:
        opening.add(
            *(partitions, stopped.wall_s, stopped.cpu_s, clean_s, clean_cpu, clean_cpu / partitions * 1e6),
            *(node.start_s, node.cpu_s(), node.cpu_s() / partitions * 1e6, node.resident_bytes() / MiB),
        )
        deleted = _delete(node)
        node.kill()  # A clean stop would only remove the files.
    making.add(
        *(partitions, made.wall_s, made.cpu_s, made.cpu_us(partitions), made.cpu_us(partitions) / floor.cpu_us),
        *(made.pause_ms, deleted.wall_s, deleted.cpu_s, deleted.cpu_us(partitions), deleted.pause_ms),
    )


def _produce_to_all(node: Node, connection: RawConnection, partitions: int, sizes: Sizes) -> list[float]:
    """CPU microseconds per request: the first to each partition, then to one of them, then to all in turn."""
    frames = [produce_frame(TOPIC, _RECORDS, _VALUE, partition) for partition in range(partitions)]
    return [
        _produce(node, connection, frames, partitions),
        _produce(node, connection, frames[:1], sizes.growth_requests),
        _produce(node, connection, frames, max(sizes.growth_requests, partitions)),
    ]


def _rest(node: Node, sizes: Sizes) -> tuple[float, float]:
    """CPU milliseconds per minute of maintenance only, and the longest delay it causes."""
    with spending(node) as idle:
        time.sleep(sizes.growth_idle_s)
    with spending(node, beside=True) as watched:
        time.sleep(sizes.growth_idle_s)
    return idle.cpu_s / (sizes.growth_idle_s * HASTE) * 60e3, watched.pause_ms


def _produce(node: Node, connection: RawConnection, frames: list[bytes], requests: int) -> float:
    """CPU microseconds of the node per request."""
    with spending(node) as spent:
        for one in islice(cycle(frames), requests):
            answer = connection.ask(one)
    produced_at(answer)
    return spent.cpu_us(requests)


def _delete(node: Node) -> Spent:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC, topic_id=NO_UUID)], timeout_ms=60_000)
    with spending(node, beside=True) as spent:
        RawConnection(node.port).ask(frame(request, _DELETE_TOPICS_VERSION))
    return spent


def _make_bare(home: Path) -> None:
    """The floor: the files of a partition."""
    for partition in range(_FLOOR_PARTITIONS):
        directory = home / str(partition)
        directory.mkdir(parents=True)
        for name in ("00000000000000000000.log", "partition.metadata"):
            os.close(os.open(directory / name, os.O_RDWR | os.O_CREAT, 0o600))


def _findings(making: Table, using: Table, opening: Table) -> list[str]:
    few, many = using.rows[0], using.rows[-1]
    made, opened, idle_ms = making.rows[-1], opening.rows[-1], many[4]
    assert isinstance(idle_ms, float)
    return [
        compared(
            f"Produce to one partition, {few[0]:,} to {many[0]:,} partitions, CPU", few[2], many[2], "Not explained."
        ),
        compared(
            f"Produce to all in turn, {few[0]:,} to {many[0]:,} partitions, CPU",
            *(few[3], many[3]),
            "Each request meets a log that nobody used for a while: what is needed of it is in no cache.",
        ),
        f"The first records of a partition make its two index files; making {made[0]:,} partitions makes as many "
        f"directories and two files in each: {made[4]:.1f} times what the bare files cost. It is done in slices, so "
        "that others wait only for a slice, and for the decision, which is one batch in the metadata log.",
        f"Idle with {many[0]:,} logs: {idle_ms / 600:.2f}% of a core. Checkpoints, cleaning and retention look at "
        "every log; nothing is written where nothing has changed.",
        f"Memory: {many[7]:.1f} KiB a partition. Open files: the log of each partition written to, none for the "
        "others; indexes only once they have filled a page.",
        f"Starting {opened[0]:,} partitions: {opened[5]:.0f} µs of CPU each after a clean stop, {opened[8]:.0f} after "
        "kill -9; every directory is listed and half a dozen small files are read. Stopping syncs every log that was "
        "written to.",
    ]
