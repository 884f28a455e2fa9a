"""The whole node under load, next to Apache Kafka: the same loads in the same run, turn about."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.load import PERCENTILES, Job, Result
from bench.nodes import TICK_S, Kafka, Node, Ottla, starting_times
from bench.report import Section, Table, verdict
from bench.sampling import Sampling
from bench.sizes import KiB, MiB, Sizes

BATCH_16K: dict[str, Any] = {"batch.size": 16 * KiB, "linger.ms": 5}
"""What Kafka's own producer has by default."""
BATCH_128K: dict[str, Any] = {"batch.size": 128 * KiB, "linger.ms": 5}
ONE_RECORD: dict[str, Any] = {"batch.num.messages": 1, "linger.ms": 0}
NO_BACK_OFF: dict[str, Any] = {"fetch.queue.backoff.ms": 0}
"""By default librdkafka asks for nothing for up to a second once 100,000 records wait for the application. A broker
that fills this queue sooner would then wait, and the load would measure the pause instead of the broker."""

MEMORY_AIM = 0.25
START_AIM = 0.2
CPU_AIM = 1.0
THROUGHPUT_AIM = 1.0
_CATCH_UP = "catch-up"

REASONS = {
    "produce 50 to 150 B, 16 KiB batches": "records of mixed sizes are walked one by one in Python (`_walk`); the "
    "native kernel is for that",
    "produce 10 x 100 B, 1 connection": "the event loop's own rounds and the send take most of the profile; an answer "
    "waits for the end of its round, which paid with many connections; what that costs with one was not measured apart",
    "produce 10 x 100 B, 100 connections": "every request is a read, a write and a send of its own, and then some tens "
    "of microseconds of Python spread over many functions; that Kafka gains from both cores is supposed, not measured",
}
"""What the profiles showed where an aim was missed."""


@dataclass
class Load:
    name: str
    job: Job


@dataclass
class Best:
    """The best of all rounds of a load against one broker."""

    wall_s: float = float("inf")
    cpu_s: float = float("inf")
    bytes: int = 0
    requests: int = 0
    latencies_ms: list[float] = field(default_factory=lambda: [float("inf")] * len(PERCENTILES))

    def take(self, result: Result, cpu_s: float) -> None:
        self.wall_s = min(self.wall_s, result["wall_s"])
        self.cpu_s = min(self.cpu_s, cpu_s)
        self.bytes = result["bytes"]
        self.requests = result.get("requests", 0)
        found = result.get("latencies_ms", self.latencies_ms)
        self.latencies_ms = [min(pair) for pair in zip(self.latencies_ms, found, strict=True)]

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.wall_s / 1e6

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / self.bytes * 1e9


def throughput_loads(scale: float) -> list[Load]:
    """`scale` is 1 for the whole benchmark."""

    def produce(name: str, records: int, value_bytes: int, client: dict[str, Any], *, mixed: bool = False) -> Load:
        job = Job(kind="produce", records=int(records * scale), value_bytes=value_bytes, client=client, mixed=mixed)
        return Load(name, job)

    def from_many(name: str, records: int, connections: int) -> Load:
        job = Job(kind="produce from many", records=int(records * scale), value_bytes=100, records_per_batch=10)
        return Load(name, job | {"connections": connections})

    return [
        produce("produce 100 B, 16 KiB batches", 600_000, 100, BATCH_16K),
        produce("produce 50 to 150 B, 16 KiB batches", 600_000, 100, BATCH_16K, mixed=True),
        produce("produce 1,000 B, 16 KiB batches", 200_000, 1000, BATCH_16K),
        produce("produce 1,000 B, 128 KiB batches", 200_000, 1000, BATCH_128K),
        produce("produce 100 B, one record per batch", 50_000, 100, ONE_RECORD),
        from_many("produce 10 x 100 B, 1 connection", 40_000, 1),
        from_many("produce 10 x 100 B, 100 connections", 200_000, 100),
        Load("consume 100 B, catch-up", _catch_up("100", 1_000_000 * scale, 100)),
        Load("consume 1,000 B, catch-up", _catch_up("1000", 600_000 * scale, 1000)),
    ]


def tail_loads(scale: float) -> list[Load]:
    seconds = max(4 * scale, 0.1)
    return [
        Load(
            "1,000 records/s, 1 reader", Job(kind="tail", value_bytes=100, connections=1, per_s=1000, seconds=seconds)
        ),
        Load(
            "50 records/s, 100 readers", Job(kind="tail", value_bytes=100, connections=100, per_s=50, seconds=seconds)
        ),
    ]


def _catch_up(name: str, records: float, value_bytes: int) -> Job:
    topic = f"{_CATCH_UP}-{name}"
    return Job(kind="consume", topic=topic, keep=True, records=int(records), value_bytes=value_bytes, client=NO_BACK_OFF)


def run(sizes: Sizes) -> Section:
    section = Section(
        "Broker",
        "A node (`ottla serve`) and Apache Kafka 4.3.1 (G1, 1 GiB heap, warmed up) beside each other on loopback, both "
        "with their defaults, under the same loads turn about; best of the rounds. Producers and consumers of "
        "throughput are librdkafka's; loads by connections and tails are a client that only sends and receives "
        "frames. The load runs in a process of its own on the same cores. CPU is user and system time of the broker's "
        "process; `x` is Ottla divided by Kafka. The records are checked by the plain-Python kernel: those of one "
        "size by columns, mixed ones one by one.",
    )
    with TemporaryDirectory() as path:
        home = Path(path)
        ours, peer = Ottla(), Kafka() if sizes.against_kafka else Ottla()
        starts = [min(starting_times(broker, home / str(at), sizes.starts)) for at, broker in enumerate((ours, peer))]
        nodes = [Node(broker, home / f"node-{at}") for at, broker in enumerate((ours, peer))]
        try:
            idle = [node.resident_bytes() for node in nodes]
            for node in nodes:
                _warm_up(node, sizes.broker_scale)
            measured = _measure_all(nodes, sizes, section)
            resident = _table_of_node(nodes, starts, idle, section)
        finally:
            for node in nodes:
                node.stop()
    _findings(section, measured, starts, resident)
    return section


def _warm_up(node: Node, scale: float) -> None:
    """A JVM compiles what is used often; before that its figures mean nothing. Fills what is consumed later, too."""
    for load in throughput_loads(scale):
        job: Any = load.job
        if job["kind"] == "consume":
            _run(node, job | {"kind": "produce", "client": BATCH_16K})
        elif job["kind"] == "produce":
            job = job | {"records": job["records"] // 4}
        _run(node, job)
    print(f"{node.name} is warm", file=sys.stderr)


def _measure_all(nodes: list[Node], sizes: Sizes, section: Section) -> dict[str, list[Best]]:
    throughput = Table(
        "Throughput",
        [
            "load",
            "Ottla MB/s",
            "Kafka MB/s",
            "MB/s x",
            "Ottla CPU s",
            "Kafka CPU s",
            "CPU x",
            "Ottla s/GB",
            "Kafka s/GB",
        ],
    )
    delay = Table(
        "From sending a record to its arrival at a waiting reader, milliseconds (Ottla / Kafka)",
        ["load", "p50", "p99", "p99.9", "p99 x", "Ottla CPU s", "Kafka CPU s", "CPU x"],
    )
    section.tables += [throughput, delay]
    measured = {}
    for load in throughput_loads(sizes.broker_scale):
        ours, peer = measured[load.name] = _measure(nodes, load, sizes, section)
        throughput.add(
            *(load.name, ours.mb_per_s, peer.mb_per_s, ours.mb_per_s / peer.mb_per_s),
            *(ours.cpu_s, peer.cpu_s, ours.cpu_s / peer.cpu_s, ours.cpu_s_per_gb, peer.cpu_s_per_gb),
        )
    for load in tail_loads(sizes.broker_scale):
        ours, peer = measured[load.name] = _measure(nodes, load, sizes, section)
        both = zip(ours.latencies_ms, peer.latencies_ms, strict=True)
        shown = [f"{mine:.2f} / {theirs:.2f}" for mine, theirs in both]
        p99_x = ours.latencies_ms[1] / peer.latencies_ms[1]
        delay.add(load.name, *shown, p99_x, ours.cpu_s, peer.cpu_s, ours.cpu_s / peer.cpu_s)
    return measured


def _measure(nodes: list[Node], load: Load, sizes: Sizes, section: Section) -> list[Best]:
    best = [Best() for _ in nodes]
    for _ in range(sizes.broker_rounds):
        for node, found in zip(nodes, best, strict=True):
            found.take(*_run(node, load.job))
    shown = (
        f"{node.name} {found.wall_s:.2f} s, CPU {found.cpu_s:.2f} s" for node, found in zip(nodes, best, strict=True)
    )
    print(f"{load.name}: {'; '.join(shown)}", file=sys.stderr)
    ours, peer = best
    missed = ours.cpu_s > CPU_AIM * peer.cpu_s or ours.wall_s * THROUGHPUT_AIM > peer.wall_s
    if missed and sizes.against_kafka and Sampling.possible():
        with Sampling(nodes[0].pid) as sampling:
            _run(nodes[0], load.job)
        section.profiles[f"{load.name} (py-spy, own time)"] = sampling.text()
    return best


def _run(node: Node, job: Any) -> tuple[Result, float]:
    """Run a job; its result, and what it cost the broker."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.load"],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"topic": "load", "port": node.port} | job) + "\n")
        process.stdin.flush()
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{node.name}: {job} could not be prepared")
        before = node.cpu_s()
        process.stdin.write("\n")
        process.stdin.flush()
        line = process.stdout.readline()
        cost = max(node.cpu_s() - before, TICK_S)
        if not line:
            raise RuntimeError(f"{node.name}: {job} did not end well")
        process.communicate("\n")
    result: Result = json.loads(line)
    return result, cost


def _table_of_node(nodes: list[Node], starts: list[float], idle: list[int], section: Section) -> list[int]:
    largest = [node.resident_bytes_max() for node in nodes]
    table = Table("The process", ["what", "Ottla", "Kafka", "x"])
    table.add("start to the first answered request, s", *starts, starts[0] / starts[1])
    table.add("resident when started, MiB", *(size / MiB for size in idle), idle[0] / idle[1])
    table.add("resident at most, after all loads, MiB", *(size / MiB for size in largest), largest[0] / largest[1])
    section.tables.append(table)
    return largest


def _findings(section: Section, measured: dict[str, list[Best]], starts: list[float], resident: list[int]) -> None:
    section.findings += [
        f"start-up x: {verdict(starts[0] / starts[1], START_AIM)}",
        f"memory x: {verdict(resident[0] / resident[1], MEMORY_AIM)}",
    ]
    for name, (ours, peer) in measured.items():
        line = f"{name}: broker CPU x {verdict(ours.cpu_s / peer.cpu_s, CPU_AIM)}"
        if not ours.latencies_ms[0] < float("inf"):
            line += f"; time x {verdict(ours.wall_s / peer.wall_s, 1 / THROUGHPUT_AIM)}"
        if "MISSED" in line and name in REASONS:
            line += f". Why: {REASONS[name]}"
        section.findings.append(line)
