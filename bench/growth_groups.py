"""Groups from one to a thousand: what committing, asking, keeping and loading their offsets costs the node."""

import time
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.growth import TOPIC, compared, make_topic, running, spending
from bench.nodes import Node
from bench.raw_client import RawConnection, frame
from bench.report import Section, Table
from bench.sizes import KiB, MiB, Sizes
from ottla.wire.api import ApiKey
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.errors import Error
from ottla.wire.frame import decode_response

_COMMIT_VERSION = 8
_FETCH_VERSION = 8
_LIST_VERSION = 4
_FIND_VERSION = 4
_PARTITIONS = 10
_OFFSET = 42
_READY_S_MAX = 60.0


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
    commits, fetches = [_commit(name) for name in names], [_fetch(name) for name in names]
    with running(home) as node:
        connection = RawConnection(node.port)
        make_topic(connection, _PARTITIONS)
        _find_coordinator(connection, names[0])
        _until_committed(connection, commits[0])
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
        _until_known(RawConnection(node.port), fetches[-1])
        table.add(
            *(groups, in_one, in_turn, asked_one, asked_in_turn, listed / groups),
            *(idle.cpu_s / sizes.growth_idle_s * 60e3, (resident - bare_bytes) / groups / KiB, resident / MiB),
            *(time.perf_counter() - started, node.cpu_s()),
        )


def _commit(group: str) -> bytes:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=_OFFSET, committed_metadata="")
        for index in range(_PARTITIONS)
    ]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    return frame(OffsetCommitRequest(group_id=group, member_id="", topics=topics), _COMMIT_VERSION)


def _fetch(group: str) -> bytes:
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(_PARTITIONS)))]
    groups = [OffsetFetchRequestGroup(group_id=group, topics=topics)]
    return frame(OffsetFetchRequest(groups=groups, require_stable=False), _FETCH_VERSION)


def _find_coordinator(connection: RawConnection, group: str) -> None:
    """As a client does; the first time this makes the topic of the offsets."""
    request = frame(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), _FIND_VERSION)
    deadline = time.monotonic() + _READY_S_MAX
    while time.monotonic() < deadline:
        body = decode_response(ApiKey.FIND_COORDINATOR, _FIND_VERSION, connection.ask(request))[1]
        if not body.coordinators[0].error_code:
            return
        time.sleep(0.02)
    raise RuntimeError(f"nobody coordinates {group}")


def _until_committed(connection: RawConnection, commit: bytes) -> None:
    """A new coordinator loads what there is first."""
    deadline = time.monotonic() + _READY_S_MAX
    while time.monotonic() < deadline:
        body = decode_response(ApiKey.OFFSET_COMMIT, _COMMIT_VERSION, connection.ask(commit))[1]
        error = body.topics[0].partitions[0].error_code
        if not error:
            return
        time.sleep(0.02)
    raise RuntimeError(f"the offsets were not committed: {Error(error).name}")


def _until_known(connection: RawConnection, fetch: bytes) -> None:
    deadline = time.monotonic() + _READY_S_MAX
    while time.monotonic() < deadline:
        group = decode_response(ApiKey.OFFSET_FETCH, _FETCH_VERSION, connection.ask(fetch))[1].groups[0]
        if not group.error_code and group.topics[0].partitions[-1].committed_offset == _OFFSET:
            return
        time.sleep(0.02)
    raise RuntimeError("the offsets that were committed before the start are not known after it")


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
