"""Coordinators next to Apache Kafka's: commits, forming groups, transactions, and a start with many offsets."""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.coordinator_commits import WINDOW, Commits
from bench.coordinator_members import ClassicGroup, ConsumerGroup, Group, time_to_stable
from bench.coordinator_notes import LINES, MISSES
from bench.coordinator_transactions import RECORDS, by_frames, by_librdkafka
from bench.group_requests import commit_frame, find_coordinator, offsets_frame, until_committed, until_known
from bench.growth import make_topic, settle
from bench.nodes import TICK_S, Broker, Kafka, Node, Ottla
from bench.raw_client import RawConnection
from bench.report import Section, Table, verdict
from bench.sampling import Sampling
from bench.sizes import Sizes

CPU_AIM = 0.7
TIME_AIM = 1.0
_TOPIC = "coordinated"
_PARTITIONS = 300
_OFFSETS_PER_GROUP = 100
_MEMBERS_AT_LEAST = 150
_INTERNAL_PARTITIONS = 50
_SETTINGS: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.max.size": 1000,
    "offsets.topic.num.partitions": _INTERNAL_PARTITIONS,
    "transaction.state.log.num.partitions": _INTERNAL_PARTITIONS,
}
_RESTART = "start with offsets"
_round = count(1)


@dataclass(frozen=True)
class Load:
    """A load whose time is measured; `done` is the number of commits, groups or transactions."""

    name: str
    run: Callable[[Node], float]
    done: int


@dataclass
class Best:
    """The best of all rounds against one broker."""

    wall_s: float = float("inf")
    cpu_s: float = float("inf")

    def take(self, wall_s: float, cpu_s: float) -> None:
        self.wall_s, self.cpu_s = min(self.wall_s, wall_s), min(self.cpu_s, max(cpu_s, TICK_S))


def run(sizes: Sizes) -> Section:
    section = Section(
        "Coordinators",
        "A node (`ottla serve`) and Apache Kafka 4.3.1 (G1, 1 GiB heap, warmed up) beside each other on loopback, "
        "under the same loads turn about; best of the rounds. Both have 50 partitions in each internal topic, and "
        "the pauses that are settings are 0 (`group.initial.rebalance.delay.ms`, "
        "`group.consumer.assignment.interval.ms`). Small groups form some after the other, and the median of them is "
        "told. All clients but librdkafka only send and receive frames, in a "
        "process of their own on the same cores. CPU is user and system time of the broker's process; `x` is Ottla "
        "divided by Kafka.",
    )
    with TemporaryDirectory() as path:
        home = Path(path)
        brokers = _brokers(sizes)
        with ExitStack() as running:
            nodes = []
            for at, broker in enumerate(brokers):
                node = Node(broker, home / f"node-{at}")
                running.callback(node.stop)
                nodes.append(node)
                make_topic(RawConnection(node.port), _PARTITIONS, _TOPIC)
            for title, unit, loads in _tables(sizes):
                wanted = [load for load in loads if sizes.load in load.name]
                if wanted:
                    _measure(nodes, title, unit, wanted, sizes, section)
        if sizes.load in _RESTART:
            _restarts(brokers, home, sizes, section)
    return section


def _brokers(sizes: Sizes) -> list[Broker]:
    return [Ottla(_SETTINGS), Kafka(_SETTINGS) if sizes.against_kafka else Ottla(_SETTINGS)]


def _tables(sizes: Sizes) -> list[tuple[str, str, list[Load]]]:
    scale = sizes.broker_scale
    return [
        (f"Offset commits, {WINDOW} requests of a connection under way", "commits", _commits(scale)),
        ("From the first join to a stable group, then all leave", "groups", _groups(sizes)),
        (f"Transactions of {RECORDS} records of 100 B", "transactions", _transactions(scale)),
    ]


def _commits(scale: float) -> list[Load]:
    few, many = max(int(10_000 * scale), 20), max(int(2_000 * scale), 20)
    loads = [Commits(few, 1, 1), Commits(2 * few, 10, 1), Commits(many, 1, 50), Commits(many, 10, 50)]
    return [Load(each.name, lambda node, each=each: each.run(node.port, _TOPIC), each.requests) for each in loads]  # type: ignore[misc]


def _groups(sizes: Sizes) -> list[Load]:
    def joining(node: Node, make: Callable[[str], Group], groups: int) -> float:
        """The total time if every group had taken the median.

        Members wait in steps of 100 ms: a group that needs no step, because one heartbeat came before another, is done
        in a twentieth of the time. The number of such groups of fifty changes the mean by more than all the work does.
        """
        took = []
        for _ in range(groups):
            connection = RawConnection(node.port)
            group_id = f"joining-{next(_round)}"
            find_coordinator(connection, group_id)
            connection.socket.close()
            took.append(time_to_stable(node.port, lambda group_id=group_id: make(group_id)))  # type: ignore[misc]
        return median(took) * groups

    loads = []
    for members in sizes.coordinator_members:
        groups = max(_MEMBERS_AT_LEAST // members, 1)  # Small groups are too quick to time one of them.

        def classic(group_id: str, members: int = members) -> Group:
            return ClassicGroup(group_id, members)

        def consumer(group_id: str, members: int = members) -> Group:
            return ConsumerGroup(group_id, members, _TOPIC, _PARTITIONS)

        for kind, make in (("classic", classic), ("consumer", consumer)):
            name = f"{kind}, {members} members"
            loads.append(Load(name, lambda node, make=make, groups=groups: joining(node, make, groups), groups))  # type: ignore[misc]
    return loads


def _transactions(scale: float) -> list[Load]:
    few, many = max(int(300 * scale), 3), max(int(2_000 * scale), 20)
    return [
        Load("librdkafka, 1 producer", lambda node: by_librdkafka(node.port, _TOPIC, few), few),
        Load("frames, 1 producer", lambda node: by_frames(node.port, _TOPIC, few, 1), few),
        Load("frames, 10 producers", lambda node: by_frames(node.port, _TOPIC, many, 10), many),
    ]


def _measure(nodes: list[Node], title: str, unit: str, loads: list[Load], sizes: Sizes, section: Section) -> None:
    columns = [f"Ottla {unit}/CPU s", f"Kafka {unit}/CPU s", "CPU x", "Ottla ms", "Kafka ms", "time x"]
    table = Table(f"{title}; milliseconds for one of the {unit}", ["load", *columns])
    section.tables.append(table)
    for load in loads:
        best = [Best() for _ in nodes]
        for node in nodes:
            load.run(node)  # A JVM compiles what is used often; before that its figures mean nothing.
        for _ in range(sizes.broker_rounds):
            for node, found in zip(nodes, best, strict=True):
                settle(node)
                cpu_s = node.cpu_s()
                wall_s = load.run(node)
                found.take(wall_s, node.cpu_s() - cpu_s)
        ours, peer = best
        cpu_x, time_x = ours.cpu_s / peer.cpu_s, ours.wall_s / peer.wall_s
        rates = (load.done / ours.cpu_s, load.done / peer.cpu_s)
        times_ms = (ours.wall_s / load.done * 1e3, peer.wall_s / load.done * 1e3)
        table.add(load.name, *rates, cpu_x, *times_ms, time_x)
        print(f"{load.name}: CPU x {cpu_x:.2f}, time x {time_x:.2f}", file=sys.stderr)
        section.findings.append(_verdict(load.name, cpu_x, time_x))
        if sizes.against_kafka and Sampling.possible():
            with Sampling(nodes[0].pid) as sampling:
                load.run(nodes[0])
            sampling.tell(load.name, LINES, section)


def _verdict(name: str, cpu_x: float, time_x: float) -> str:
    line = f"{name}: broker CPU x {verdict(cpu_x, CPU_AIM)}; time x {verdict(time_x, TIME_AIM)}"
    return f"{line}. Why: {MISSES[name]}" if "MISSED" in line and name in MISSES else line


def _restarts(brokers: list[Broker], home: Path, sizes: Sizes, section: Section) -> None:
    """On their own directories; every start is a new process."""
    groups = [f"restarted-{number}" for number in range(max(sizes.coordinator_offsets // _OFFSETS_PER_GROUP, 1))]
    table = Table(
        f"Start with {len(groups) * _OFFSETS_PER_GROUP:,} committed offsets, until all groups' are answered",
        ["load", "Ottla s", "Kafka s", "time x", "Ottla CPU s", "Kafka CPU s", "CPU x"],
    )
    section.tables.append(table)
    homes = [home / f"restart-{at}" for at in range(len(brokers))]
    for broker, place in zip(brokers, homes, strict=True):
        _fill(broker, place, groups)
    for name, is_clean in (("after kill -9", False), ("after a clean stop", True)):
        best = [Best() for _ in brokers]
        for _ in range(sizes.starts):
            for broker, place, found in zip(brokers, homes, best, strict=True):
                _end(broker, place, groups, is_clean=is_clean)
                found.take(*_start(broker, place, groups))
        ours, peer = best
        cpu_x, time_x = ours.cpu_s / peer.cpu_s, ours.wall_s / peer.wall_s
        table.add(name, ours.wall_s, peer.wall_s, time_x, ours.cpu_s, peer.cpu_s, cpu_x)
        section.findings.append(_verdict(f"start {name}", cpu_x, time_x))


def _fill(broker: Broker, home: Path, groups: list[str]) -> None:
    node = Node(broker, home)
    try:
        connection = RawConnection(node.port)
        make_topic(connection, _OFFSETS_PER_GROUP, _TOPIC)
        find_coordinator(connection, groups[0])
        for group in groups:
            until_committed(connection, commit_frame(group, _TOPIC, _OFFSETS_PER_GROUP))
    finally:
        node.stop()


def _end(broker: Broker, home: Path, groups: list[str], *, is_clean: bool) -> None:
    """Run it, load it, and end it in this way."""
    node = Node(broker, home)
    try:
        until_known(RawConnection(node.port), offsets_frame(groups, _TOPIC, 1))
        if not is_clean:
            node.kill()
    finally:
        node.stop()


def _start(broker: Broker, home: Path, groups: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds from the command until the offsets of every group were returned."""
    fetch = offsets_frame(groups, _TOPIC, 1)
    node = Node(broker, home)
    try:
        answering = time.perf_counter()
        until_known(RawConnection(node.port), fetch)
        return node.start_s + time.perf_counter() - answering, node.cpu_s()
    finally:
        node.stop()
