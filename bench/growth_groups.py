"""One to a thousand groups: the node's cost of committing, fetching, keeping and loading their offsets."""

import time
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.group_requests import commit_frame, find_coordinator, offsets_frame, until_committed, until_known
from bench.growth import TOPIC, compared, make_topic, running, spending
from bench.nodes import Node
from bench.raw_client import RawConnection, frame
from bench.report import Section, Table
from bench.sizes import KiB, MiB, Sizes
from ottla.wire.api.list_groups import ListGroupsRequest

_LIST_VERSION = 4
_PARTITIONS = 10


def run(sizes: Sizes) -> Section:
    section = Section(
        "Growth: groups",
        f"A node of its own (`ottla serve`) that coordinates so many groups, each with the offsets of {_PARTITIONS} "
        "partitions; CPU is user and system time of its process. One request at a time; `in turn` takes all groups. "
        "`start`: until the offsets of the last group are answered.",
    )
    table = Table(
        "Groups",
        [
            *("groups", "commit in one CPU µs", "in turn CPU µs", "offsets of one CPU µs", "in turn CPU µs"),
            *("list all CPU µs/group", "idle CPU ms/minute", "KiB/group", "MiB resident"),
            *("start after kill -9 s", "CPU s"),
        ],
    )
    section.tables.append(table)
    for groups in sizes.growth_groups:
        with TemporaryDirectory() as path:
            _measure(Path(path), groups, sizes, table)
    section.findings += _findings(table)
    return section


def _measure(home: Path, groups: int, sizes: Sizes, table: Table) -> None:
    names = [f"group-{number}" for number in range(groups)]
    commits = [commit_frame(name, TOPIC, _PARTITIONS) for name in names]
    fetches = [offsets_frame([name], TOPIC, _PARTITIONS) for name in names]
    with running(home) as node:
        connection = RawConnection(node.port)
        make_topic(connection, _PARTITIONS)
        find_coordinator(connection, names[0])
        until_committed(connection, commits[0])
        bare_bytes = node.resident_bytes()
        requests = max(sizes.growth_requests, groups)
        in_turn = _each(node, connection, commits, requests)
        in_one = _each(node, connection, commits[:1], sizes.growth_requests)
        asked_one = _each(node, connection, fetches[:1], sizes.growth_requests)
        asked_in_turn = _each(node, connection, fetches, requests)
        listed = _each(node, connection, [frame(ListGroupsRequest(states_filter=[]), _LIST_VERSION)], 10)
        with spending(node) as idle:
            time.sleep(sizes.growth_idle_s)
        resident = node.resident_bytes()
        node.kill()
    started = time.perf_counter()
    with running(home) as node:
        until_known(RawConnection(node.port), fetches[-1])
        table.add(
            *(groups, in_one, in_turn, asked_one, asked_in_turn, listed / groups),
            *(idle.cpu_s / sizes.growth_idle_s * 60e3, (resident - bare_bytes) / groups / KiB, resident / MiB),
            *(time.perf_counter() - started, node.cpu_s()),
        )


def _each(node: Node, connection: RawConnection, frames: list[bytes], requests: int) -> float:
    """CPU microseconds of the node per request."""
    with spending(node) as spent:
        for one in islice(cycle(frames), requests):
            connection.ask(one)
    return spent.cpu_us(requests)


def _findings(table: Table) -> list[str]:
    few, many = table.rows[0], table.rows[-1]
    span, idle_ms = f"{few[0]:,} to {many[0]:,} groups", many[6]
    assert isinstance(idle_ms, float)
    return [
        compared(f"Commit in one group, {span}, CPU", few[1], many[1], "Not explained."),
        compared(f"Commit in turn, {span}, CPU", few[2], many[2], "The groups are spread over many partitions."),
        compared(f"Offsets of one group, {span}, CPU", few[3], many[3], "Not explained."),
        compared(f"Offsets in turn, {span}, CPU", few[4], many[4], "Not explained."),
        f"Idle with {many[0]:,}: {idle_ms / 600:.2f}% of a core. Memory: {many[7]:.1f} KiB a group.",
        "Starting reads every commit since the last compaction again.",
    ]
