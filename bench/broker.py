"""The whole node under load, next to Apache Kafka: the same loads in the same run, alternating."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.bare import WHAT, Bare, CannotCompile
from bench.broker_loads import (
    BARE_AIM,
    LATENCY_AIM,
    LOAD_FOR_LATENCY,
    THROUGHPUT_AIM,
    Load,
    filling,
    most_possible,
    paced,
    reads,
    tail_loads,
    throughput_loads,
)
from bench.broker_notes import BARE_MISSES, LINES, MISSES, REFERENCE_MISSES
from bench.load import PERCENTILES, Result
from bench.nodes import TICK_S, Broker, Kafka, Node, Ottla, starting_times
from bench.page_cache import filled
from bench.paired import TimesAsLong
from bench.report import Section, Table, verdict
from bench.sampling import Sampling
from bench.sizes import MiB, Sizes
from ottla.kernel.choice import IMPLEMENTATION, VARIABLE

MEMORY_AIM = 0.25
START_AIM = 0.2
REFERENCE_CPU_AIM = 1.0
_HOW = (
    "A node (`ottla serve`) and Apache Kafka 4.3.1 (G1, 1 GiB heap, warmed up) beside each other on loopback, both "
    "with their defaults, under the same loads turn about; best of the rounds. The load runs in a process of its own "
    "on the same cores. The page cache is full, as where a broker has run for a while: new pages are taken from it, "
    "and not from the host of a virtual machine, who takes longer than everything else."
)
_BARE_BYTES = 400 * MiB


@dataclass
class Best:
    """The best of all rounds of a load against one broker."""

    walls_s: list[float] = field(default_factory=list)
    """Of every round."""
    cpu_s: float = float("inf")
    bytes: int = 0
    requests: int = 0
    latencies_ms: list[float] = field(default_factory=lambda: [float("inf")] * len(PERCENTILES))
    from_disk: int = 0
    """Bytes that were not in the page cache, in the worst round."""

    def take(self, result: Result, cpu_s: float, from_disk: int) -> None:
        self.walls_s.append(result["wall_s"])
        self.cpu_s = min(self.cpu_s, cpu_s)
        self.bytes = result["bytes"]
        self.requests = result.get("requests", 0)
        found = result.get("latencies_ms", self.latencies_ms)
        self.latencies_ms = [min(pair) for pair in zip(self.latencies_ms, found, strict=True)]
        self.from_disk = max(self.from_disk, from_disk)

    @property
    def wall_s(self) -> float:
        return min(self.walls_s)

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.wall_s / 1e6

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / self.bytes * 1e9

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.wall_s

    @property
    def has_latencies(self) -> bool:
        return self.latencies_ms[0] < float("inf")


@dataclass
class Measured:
    load: Load
    ours: Best
    peer: Best
    bare_s_per_gb: float = float("inf")
    """The cost of the bytes alone in C, in the same rounds: a lower bound for any broker. Infinite: not measured."""

    @property
    def cpu_x(self) -> float:
        return self.ours.cpu_s / self.peer.cpu_s

    @property
    def time_x(self) -> float:
        return self.ours.wall_s / self.peer.wall_s

    @property
    def times_as_long(self) -> TimesAsLong:
        return TimesAsLong.of(self.ours.walls_s, self.peer.walls_s)

    @property
    def p99_x(self) -> float:
        return self.ours.latencies_ms[1] / self.peer.latencies_ms[1]

    @property
    def p999_x(self) -> float:
        return self.ours.latencies_ms[2] / self.peer.latencies_ms[2]


class Bench:
    """Two running brokers, and the section for their figures."""

    def __init__(
        self, nodes: list[Node], sizes: Sizes, section: Section, bare: Bare | None = None, profiled_as: str = ""
    ) -> None:
        self._nodes = nodes
        self._sizes = sizes
        self._section = section
        self._bare = bare
        self._profiled_as = profiled_as

    def add(self, table: Table) -> None:
        self._section.tables.append(table)

    def measure(self, load: Load) -> Measured:
        best, limit = [Best() for _ in self._nodes], float("inf")
        turns = list(zip(self._nodes, best, strict=True))
        for _ in range(self._sizes.broker_rounds * load.times_the_rounds):
            for node, found in turns:
                found.take(*run_job(node, load.job))
            if self._bare is not None and load.bare is not None:
                limit = min(limit, self._bare.cpu_s_per_gb(load.bare))
            turns.reverse()
        both = zip(self._nodes, best, strict=True)
        shown = (f"{node.name} {found.wall_s:.2f} s, CPU {found.cpu_s:.2f} s" for node, found in both)
        print(f"{load.name}: {'; '.join(shown)}", file=sys.stderr)
        if self._sizes.against_kafka and Sampling.possible():
            self._profile(load)
        ours, peer = best
        return Measured(load, ours, peer, limit)

    def _profile(self, load: Load) -> None:
        """One more round with sampling: the profile is kept beside the table, and its costliest lines are named in
        it."""
        with Sampling(self._nodes[0].pid) as sampling:
            run_job(self._nodes[0], load.job)
        sampling.tell(self._profiled_as + load.name, LINES, self._section)


def run(sizes: Sizes) -> Section:
    section = Section(
        "Broker",
        f"{_HOW} Producers and consumers of throughput are librdkafka's; loads by connections and tails are a client "
        "that only sends and receives frames. What librdkafka consumes is bound by its own threads, which "
        "are busy nine tenths of the time. So the time of these loads is judged by the median of all rounds, each "
        "against the round of the other broker that stood beside it, and by the limits that this median is within, 95 "
        "times of 100; `median x` is that of every load. CPU is user and system time of the broker's process; "
        f"`x` is Ottla divided by Kafka. The records are checked by the {IMPLEMENTATION} kernel. Loads of `profiles/` "
        "were run once more under a sampler; that run is in no figure.",
    )
    with TemporaryDirectory() as path:
        home = Path(path)
        ours, peer = Ottla(), peer_of(sizes)
        starts = [min(starting_times(broker, home / str(at), sizes.starts)) for at, broker in enumerate((ours, peer))]
        with memory_in_use(home, sizes), running(ours, peer, home) as nodes:
            idle = [node.resident_bytes() for node in nodes]
            for node in nodes:
                _warm_up(node, throughput_loads(sizes.broker_scale))
            measured = _measure_all(Bench(nodes, sizes, section, _bare(home, sizes, section)), sizes)
            _table_of_bare(measured, section)
            resident = _table_of_node(nodes, starts, idle, section)
    verdicts = [
        f"start-up x: {verdict(starts[0] / starts[1], START_AIM)}",
        f"memory x: {verdict(resident[0] / resident[1], MEMORY_AIM)}",
    ]
    section.findings[:0] = [*verdicts, *_verdicts(measured, MISSES)]
    return section


def run_reference(sizes: Sizes) -> Section:
    """The loads that involve the kernel."""
    section = Section(
        "Broker on the reference kernel",
        f"{_HOW} The node runs with `{VARIABLE}=reference`, as it does where no Rust is: every record is checked in "
        "Python.",
    )
    loads = [
        replace(load, cpu_aim=REFERENCE_CPU_AIM) for load in throughput_loads(sizes.broker_scale) if not reads(load.job)
    ]
    with (
        TemporaryDirectory() as path,
        memory_in_use(Path(path), sizes),
        running(Ottla(kernel="reference"), peer_of(sizes), Path(path)) as nodes,
    ):
        for node in nodes:
            _warm_up(node, loads)
        measured = _throughput(Bench(nodes, sizes, section, profiled_as="reference kernel, "), loads)
    section.findings[:0] = _verdicts(measured, REFERENCE_MISSES)
    return section


def peer_of(sizes: Sizes) -> Broker:
    return Kafka() if sizes.against_kafka else Ottla()


def memory_in_use(home: Path, sizes: Sizes) -> AbstractContextManager[None]:
    """Not worth its time where the loads are small."""
    return filled(home) if sizes.broker_scale >= 1 else nullcontext()


@contextmanager
def running(ours: Broker, peer: Broker, home: Path) -> Iterator[list[Node]]:
    nodes = [Node(broker, home / f"node-{at}") for at, broker in enumerate((ours, peer))]
    try:
        yield nodes
    finally:
        for node in nodes:
            node.stop()


def _warm_up(node: Node, loads: list[Load]) -> None:
    """A JVM compiles what is used often; before that its figures mean nothing. Also fills the topics that are consumed
    later."""
    filled: set[str] = set()
    for load in loads:
        job: Any = load.job
        if reads(job):
            if job["topic"] not in filled:
                filled.add(job["topic"])
                run_job(node, filling(job))
        elif job["kind"] == "produce":
            job = job | {"records": job["records"] // 4}
        run_job(node, job)
    print(f"{node.name} is warm", file=sys.stderr)


def _measure_all(bench: Bench, sizes: Sizes) -> list[Measured]:
    measured = _throughput(bench, [*throughput_loads(sizes.broker_scale), most_possible(sizes.broker_scale)])
    per_s = LOAD_FOR_LATENCY * measured[-1].peer.requests_per_s
    pace = f"From sending a batch to its acknowledgement, {per_s:,.0f} a second, half of what Kafka can do at most"
    return [
        *measured,
        *_delays("From sending a record to its arrival at a waiting reader", tail_loads(sizes.broker_scale), bench),
        *_delays(pace, [paced(sizes.broker_scale, per_s)], bench),
    ]


def _throughput(bench: Bench, loads: list[Load]) -> list[Measured]:
    rates = ["Ottla MB/s", "Kafka MB/s", "MB/s x", "median x"]
    costs = ["Ottla CPU s", "Kafka CPU s", "CPU x", "Ottla s/GB", "Kafka s/GB"]
    throughput = Table("Throughput", ["load", *rates, *costs])
    bench.add(throughput)
    measured = []
    for load in loads:
        found = bench.measure(load)
        measured.append(found)
        ours, peer = found.ours, found.peer
        throughput.add(
            *(load.name, ours.mb_per_s, peer.mb_per_s, 1 / found.time_x, 1 / found.times_as_long.median),
            *(ours.cpu_s, peer.cpu_s, found.cpu_x, ours.cpu_s_per_gb, peer.cpu_s_per_gb),
        )
    return measured


def _delays(title: str, loads: list[Load], bench: Bench) -> list[Measured]:
    table = Table(
        f"{title}, milliseconds (Ottla / Kafka)",
        ["load", "p50", "p99", "p99.9", "p99 x", "p99.9 x", "Ottla CPU s", "Kafka CPU s", "CPU x"],
    )
    bench.add(table)
    measured = []
    for load in loads:
        found = bench.measure(load)
        measured.append(found)
        both = zip(found.ours.latencies_ms, found.peer.latencies_ms, strict=True)
        shown = [f"{mine:.2f} / {theirs:.2f}" for mine, theirs in both]
        costs = (found.ours.cpu_s, found.peer.cpu_s, found.cpu_x)
        table.add(load.name, *shown, found.p99_x, found.p999_x, *costs)
    return measured


def _bare(home: Path, sizes: Sizes, section: Section) -> Bare | None:
    try:
        return Bare(home, max(int(_BARE_BYTES * sizes.broker_scale), MiB))
    except CannotCompile as why:
        section.findings.append(f"bare limits: not measured, {why}")
        return None


def _table_of_bare(measured: list[Measured], section: Section) -> None:
    limited = [(found, found.load.bare) for found in measured if found.bare_s_per_gb < float("inf")]
    if not limited:
        return
    table = Table("Bare limits, CPU seconds per GB", ["load", "Ottla", "bare C", "x", "what bare C does"])
    section.tables.append(table)
    for found, mode in limited:
        assert mode is not None
        times = found.ours.cpu_s_per_gb / found.bare_s_per_gb
        table.add(found.load.name, found.ours.cpu_s_per_gb, found.bare_s_per_gb, times, WHAT[mode])
        line = f"{found.load.name}: x bare {verdict(times, BARE_AIM)}"
        if "MISSED" in line and found.load.name in BARE_MISSES:
            line += f". Why: {BARE_MISSES[found.load.name]}"
        section.findings.append(line)


def run_job(node: Node, job: Any) -> tuple[Result, float, int]:
    """Run a job; its result, and what it cost the broker: CPU seconds, and bytes that had to come from the disk."""
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
        before, disk_before = node.cpu_s(), _from_disk(node)
        process.stdin.write("\n")
        process.stdin.flush()
        line = process.stdout.readline()
        cost, from_disk = max(node.cpu_s() - before, TICK_S), _from_disk(node) - disk_before
        if not line:
            raise RuntimeError(f"{node.name}: {job} did not end well")
        process.communicate("\n")
    result: Result = json.loads(line)
    return result, cost, from_disk


def _from_disk(node: Node) -> int:
    for line in Path(f"/proc/{node.pid}/io").read_text().splitlines():
        if line.startswith("read_bytes: "):
            return int(line.split()[1])
    return 0


def _table_of_node(nodes: list[Node], starts: list[float], idle: list[int], section: Section) -> list[int]:
    largest = [node.resident_bytes_max() for node in nodes]
    table = Table("The process", ["what", "Ottla", "Kafka", "x"])
    table.add("start to the first answered request, s", *starts, starts[0] / starts[1])
    table.add("resident when started, MiB", *(size / MiB for size in idle), idle[0] / idle[1])
    table.add("resident at most, after all loads, MiB", *(size / MiB for size in largest), largest[0] / largest[1])
    section.tables.append(table)
    return largest


def _verdict_of_time(found: Measured) -> str:
    """The best round of a client's own time is luck; all rounds together tell which broker it reads faster from."""
    aim = 1 / THROUGHPUT_AIM
    return found.times_as_long.verdict(aim) if found.load.is_the_clients else verdict(found.time_x, aim)


def _verdicts(measured: list[Measured], misses: Mapping[str, str]) -> list[str]:
    verdicts = []
    for found in measured:
        load = found.load
        line = f"{load.name}: broker CPU x {verdict(found.cpu_x, load.cpu_aim)}"
        if not found.ours.has_latencies:
            line += f"; time x {_verdict_of_time(found)}"
        elif load.job["kind"] == "produce paced":
            line += f"; p99 x {verdict(found.p99_x, LATENCY_AIM)}; p99.9 x {verdict(found.p999_x, LATENCY_AIM)}"
        if "MISSED" in line and load.name in misses:
            line += f". Why: {misses[load.name]}"
        for name, best in (("Ottla", found.ours), ("Kafka", found.peer)):
            if best.from_disk > best.bytes // 100:
                line += f". {best.from_disk / MiB:,.0f} MiB of {name}'s were not in the page cache"
        verdicts.append(line)
    return verdicts
