"""Every shape of load next to Apache Kafka: a matrix of clients, partitions, records, batches, codecs, readers."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bench.broker import Best, Measured, memory_in_use, peer_of, run_job, running
from bench.broker_loads import THROUGHPUT_AIM, Load
from bench.load import Job
from bench.matrix_cells import CONSUME, PRODUCE, Consume, Produce
from bench.matrix_notes import LINES, MISSES
from bench.nodes import Node, Ottla
from bench.report import Section, Table, verdict
from bench.sampling import Sampling
from bench.sizes import Sizes

_ROUNDS = 2
_TINY_CELLS = 4


def run(sizes: Sizes) -> Section:
    """A sample in which every two values meet; `--load all` measures every cell, other texts those that have it."""
    seed = time.time_ns() // 1_000_000_000
    writing, reading = _cells(sizes, Random(seed))
    section = Section(
        "Every shape of load",
        "A node (`ottla serve`) and Apache Kafka 4.3.1 (G1, 1 GiB heap, warmed up) beside each other on loopback, both "
        "with their defaults, under the same loads turn about; best of the rounds. "
        f"{len(writing)} of {len(PRODUCE.every())} cells that write and {len(reading)} of {len(CONSUME.every())} that "
        f"read, drawn so that every two values of two dimensions meet (seed {seed}); `python -m bench --load all "
        "matrix` measures all of them. Clients are Kafka's ProducerPerformance (java), librdkafka, and one that sends "
        "the same request again and again (frames). CPU is user and system time of the broker's process; `x` is Ottla "
        "divided by Kafka, `rate x` how many times as fast Ottla is.",
    )
    with (
        TemporaryDirectory() as path,
        memory_in_use(Path(path), sizes),
        running(Ottla(), peer_of(sizes), Path(path)) as nodes,
    ):
        for node in nodes:
            _warm_up(node, sizes)
        _measure("Writing", writing, nodes, sizes, section)
        _measure("Reading", reading, nodes, sizes, section)
    return section


def _cells(sizes: Sizes, random: Random) -> tuple[list[Produce], list[Consume]]:
    if not sizes.load:
        writing, reading = PRODUCE.sample(random), CONSUME.sample(random)
        return (writing, reading) if sizes.against_kafka else (writing[:_TINY_CELLS], reading[:_TINY_CELLS])
    wanted = "" if sizes.load == "all" else sizes.load
    return (
        [cell for cell in PRODUCE.every() if wanted in str(cell)],
        [cell for cell in CONSUME.every() if wanted in str(cell)],
    )


def _warm_up(node: Node, sizes: Sizes) -> None:
    """A JVM compiles what is used often; before that its figures mean nothing."""
    for batching in ("default", "one record", "128 KiB"):
        for places in ("1x1", "1x6"):
            run_job(node, _job(Produce("librdkafka", places, "1,000 B", batching, "all", "none", 1), sizes))
    run_job(node, _job(Consume(6, "assigned", "catch-up", 1), sizes))
    print(f"{node.name} is warm", file=sys.stderr)


def _job(cell: Produce | Consume, sizes: Sizes) -> Job:
    return Job(kind="matrix", cell=asdict(cell), scale=sizes.broker_scale, value_bytes=0)


def _measure(title: str, cells: Sequence[Produce | Consume], nodes: list[Node], sizes: Sizes, section: Section) -> None:
    table = Table(title, ["cell", "Ottla MB/s", "Kafka MB/s", "rate x", "Ottla CPU s", "Kafka CPU s", "CPU x"])
    section.tables.append(table)
    for cell in cells:
        job, best = _job(cell, sizes), [Best() for _ in nodes]
        turns = list(zip(nodes, best, strict=True))
        for _ in range(_ROUNDS if sizes.against_kafka else 1):
            for node, found in turns:
                found.take(*run_job(node, job))
            turns.reverse()
        ours, peer = best
        measured = Measured(Load(str(cell), job, cell.cpu_aim), ours, peer)
        print(f"{cell}: CPU x {measured.cpu_x:.2f}, rate x {1 / measured.time_x:.2f}", file=sys.stderr)
        table.add(
            *(str(cell), ours.mb_per_s, peer.mb_per_s, 1 / measured.time_x),
            *(ours.cpu_s, peer.cpu_s, measured.cpu_x),
        )
        _judge(cell, measured, nodes[0], sizes, section)


def _judge(cell: Produce | Consume, measured: Measured, node: Node, sizes: Sizes, section: Section) -> None:
    """A cell that misses its aim has its reason, where one is known, and its profile."""
    line = f"{cell}: CPU x {verdict(measured.cpu_x, cell.cpu_aim)}"
    if isinstance(cell, Produce) or cell.way == "catch-up":
        line += f"; time x {verdict(measured.time_x, 1 / THROUGHPUT_AIM)}"
    if "MISSED" not in line:
        return
    reasons = [reason for text, reason in MISSES.items() if text in str(cell)]
    section.findings.append(f"{line}{'. Why: ' if reasons else ''}{'; '.join(reasons)}")
    if sizes.against_kafka and Sampling.possible():
        with Sampling(node.pid) as sampling:
            run_job(node, measured.load.job)
        sampling.tell(f"matrix, {cell}", LINES, section)
