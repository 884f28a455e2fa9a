"""Pipelines on Spark, with either broker, beside Spark's own Kafka connector and Flink SQL.

The alternatives of a job are processes that wait and are asked for a run in turn.
"""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final, Protocol

from confluent_kafka import Producer
from peers.answering import Answering
from peers.flink import NoFlink, flink_jars

from bench.connector import NoConnector, connector_jars
from bench.flink import FlinkJob
from bench.growth import make_topic
from bench.nodes import Broker, Kafka, Node, Ottla
from bench.pipeline_jobs import CONNECTOR, FLINK, PIPELINE, REFERENCE, SOURCE, TO_PARQUET, TO_TOPIC, Job, Run
from bench.raw_client import RawConnection
from bench.report import Section, Table
from bench.sizes import Sizes

RATE_AIM: Final = 1.0
"""The aim as a ratio of the connector's records per second: for Ottla's source, and for its sink, which writes each
record once."""
BROKER_AIM: Final = 0.5
"""The aim for the broker's CPU as a share of the epochs' time: then the broker is not the bottleneck."""
RECORDS: Final = 1_000_000
PARTITIONS: Final = 4
ROUNDS_MIN: Final = 2
"""After the cold one."""
JOB_S_MAX: Final = 100.0
"""After this time only the minimum of rounds is run: the whole part, six such jobs, should take some ten minutes."""
_TOPIC: Final = "events"
_VALUE_BYTES: Final = 200
_CITIES: Final = 100
_EVENT_TIME_S: Final = 3600
"""From the first event to the last."""
_TIMEOUT_S: Final = 120
_START_S_MAX: Final = 300.0
_RUN_S_MAX: Final = 300.0
_SETTINGS: Final = {
    "log.retention.ms": -1,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
}

WAYS: Final = {
    TO_PARQUET: (PIPELINE, SOURCE, CONNECTOR),
    TO_TOPIC: (PIPELINE, CONNECTOR),
    REFERENCE: (PIPELINE, CONNECTOR, FLINK),
}
_COMPARED: Final = (
    (TO_PARQUET, SOURCE, CONNECTOR, RATE_AIM, "our source against the connector's, both into Spark's own Parquet sink"),
    (TO_TOPIC, PIPELINE, CONNECTOR, RATE_AIM, "our exactly-once sink against the connector's at-least-once one"),
    (REFERENCE, PIPELINE, CONNECTOR, None, "the reference job, exactly once, against the connector, at least once"),
    (REFERENCE, PIPELINE, FLINK, None, "the reference job on Spark against Flink SQL, both exactly once"),
)
"""Which rates are compared, and the aims."""

Found = dict[tuple[str, str, str], Run]
"""The best run after the cold one, by broker, job and way."""


class RunningJob(Protocol):
    """A process that waits until it is asked for a run."""

    def start(self) -> None: ...
    def run(self) -> Run: ...
    def stop(self) -> None: ...


class SparkJob:
    def __init__(self, job: Job, home: Path) -> None:
        self._job = job
        home.mkdir(parents=True)
        modules = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "bench.pipeline_load"]
        self._process = Answering("Spark", command, home, os.environ | {"PYTHONPATH": modules})
        self.stop = self._process.stop

    def start(self) -> None:
        self._process.ask(json.dumps(self._job))
        self._process.answer(_START_S_MAX)

    def run(self) -> Run:
        self._process.ask("run")
        done: Run = json.loads(self._process.answer(_RUN_S_MAX))
        return done


def run(sizes: Sizes) -> Section:
    records = max(int(RECORDS * sizes.broker_scale), 1000)
    section = Section(
        "Pipelines",
        f"{records:,} JSON records of {_VALUE_BYTES} B in {PARTITIONS} partitions, read from the first to the last in "
        "4 epochs, on `local[2]` beside the broker on the same cores. `pipeline` is `ottla pipeline run --once`, "
        "exactly once; `source` is our source and Spark's own Parquet sink; `connector` is Spark's Kafka connector as "
        "source and as sink, which writes at least once; `Flink SQL` is Flink 2.2 in one JVM, parallelism 2, with a "
        "checkpoint a second and its exactly-once sink. The reference job parses, filters, and counts and sums by key "
        "in windows of 60 s, into a topic. Each in a process of its own, turn about: the first run is cold (all of "
        "it, but for the start of Spark), the best of the later ones steady (its epochs; with Flink the job, to its "
        "last checkpoint). CPU is user and system time in the steady run, of all processes that ran the job and of "
        "the broker's; `of the time` is what the broker was on the CPU.",
    )
    jars = _jars(section)
    columns = ["broker, job", "way", "cold records/s", "steady records/s", "CPU s", "broker CPU s", "of the time"]
    table = Table("Records a second", columns)
    best: Found = {}
    with TemporaryDirectory() as home:
        for broker in _brokers(sizes):
            with ExitStack() as running:
                node = Node(broker, Path(home) / broker.name)
                running.callback(node.stop)
                fill(node, records)
                for kind, ways in WAYS.items():
                    if sizes.load in kind:
                        jobs = [job_of(node, kind, way, records, jars) for way in ways if way in jars]
                        _measure(jobs, node.name, sizes.broker_rounds, Path(home), table, best)
    section.tables.append(table)
    section.findings += findings(best)
    return section


def _measure(jobs: list[Job], broker: str, rounds: int, home: Path, table: Table, best: Found) -> None:
    """Every alternative of one job: a cold run of each, then up to `rounds` rounds, alternating."""
    began = perf_counter()
    runs: dict[str, list[Run]] = {job["way"]: [] for job in jobs}
    with ExitStack() as running:
        started: dict[str, RunningJob] = {}
        for job in jobs:
            place = home / f"{broker}-{job['kind']}-{job['way']}"
            started[job["way"]] = FlinkJob(job, place) if job["way"] == FLINK else SparkJob(job, place)
            running.callback(started[job["way"]].stop)
            started[job["way"]].start()
        for number in range(rounds + 1):
            if number > ROUNDS_MIN and perf_counter() - began > JOB_S_MAX:
                break
            for job in jobs:
                done = started[job["way"]].run()
                runs[job["way"]].append(done)
                _say(broker, job, number, done)
    for job in jobs:
        cold, *warm = runs[job["way"]]
        steady = min(warm, key=lambda done: done["steady_s"])
        best[broker, job["kind"], job["way"]] = steady
        cold_rate, rate = job["records"] / cold["wall_s"], job["records"] / steady["steady_s"]
        share = f"{_share(steady):.0%}"
        cpu_s, broker_cpu_s = steady["cpu_s"], steady["broker_cpu_s"]
        table.add(f"{broker}, {job['kind']}", job["way"], cold_rate, rate, cpu_s, broker_cpu_s, share)


def _say(broker: str, job: Job, number: int, done: Run) -> None:
    rate = job["records"] / (done["steady_s"] if number else done["wall_s"])
    what = f"round {number}" if number else "cold"
    said = f"{rate:,.0f} records/s, {done['cpu_s']:.1f} s on the CPU, the broker {done['broker_cpu_s']:.2f} s"
    print(f"{broker}, {job['kind']}, {job['way']}, {what}: {said}", file=sys.stderr, flush=True)


def _brokers(sizes: Sizes) -> list[Broker]:
    return [Ottla(_SETTINGS), *([Kafka(_SETTINGS)] if sizes.against_kafka else [])]


def _jars(section: Section) -> dict[str, list[str]]:
    """The jars of each alternative; a missing one is left out, and the section says why."""
    jars: dict[str, list[str]] = {PIPELINE: [], SOURCE: []}
    try:
        jars[CONNECTOR] = [str(path) for path in connector_jars()]
    except NoConnector as missing:
        section.findings.append(
            f"Spark's Kafka connector is not to be had, and nothing is compared with it: {missing}."
        )
    try:
        flink_jars()
        jars[FLINK] = []
    except NoFlink as missing:
        section.findings.append(f"Flink is not to be had, and nothing is compared with it: {missing}.")
    return jars


def fill(node: Node, records: int) -> None:
    """Fill the topic that every job reads."""
    make_topic(RawConnection(node.port), PARTITIONS, _TOPIC)
    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": records + 1}
    )
    for number in range(records):
        producer.produce(_TOPIC, event(number, records), key=_city(number), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    if left := producer.flush(_TIMEOUT_S):
        raise RuntimeError(f"{node.name} did not take {left} of {records} records")


def event(number: int, records: int) -> bytes:
    second = number * _EVENT_TIME_S // records
    at = f"2026-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
    text = json.dumps({"id": number, "city": _city(number), "total": number % 97, "event_time": at, "note": ""})
    return (text[:-2] + "n" * (_VALUE_BYTES - len(text)) + text[-2:]).encode()


def _city(number: int) -> str:
    return f"city-{number * 7919 % _CITIES}"


def job_of(node: Node, kind: str, way: str, records: int, jars: Mapping[str, list[str]]) -> Job:
    return Job(
        kind=kind,
        way=way,
        bootstrap=node.bootstrap,
        broker_pid=node.pid,
        topic=_TOPIC,
        records=records,
        partitions=PARTITIONS,
        jars=jars[way],
    )


def _share(done: Run) -> float:
    return done["broker_cpu_s"] / done["steady_s"]


def findings(best: Found) -> list[str]:
    """The results of the best runs, and whether the aims are met."""
    return [*_compared(best), _broker_share(best)] if best else []


def _compared(best: Found) -> list[str]:
    told = []
    for broker in dict.fromkeys(name for name, _, _ in best):
        for kind, ours, theirs, aim, what in _COMPARED:
            if (broker, kind, theirs) in best:
                mine, other = best[broker, kind, ours], best[broker, kind, theirs]
                said = f"{other['steady_s'] / mine['steady_s']:.2f} x the records a second"
                said += f", {mine['cpu_s'] / other['cpu_s']:.2f} x the CPU seconds"
                if aim is not None:
                    met = other["steady_s"] / mine["steady_s"] >= aim
                    said += f"; aim {aim:.1f} x the records or more: " + ("met" if met else "MISSED")
                told.append(f"{broker}: {what}: {said}.")
    return told


def _broker_share(best: Found) -> str:
    busiest = max(best, key=lambda key: _share(best[key]))
    share = _share(best[busiest])
    met = "met" if share <= BROKER_AIM else "MISSED"
    return (
        f"The broker holds nobody up: it was on the CPU for {share:.0%} of the time at most ({', '.join(busiest)}), "
        f"aim {BROKER_AIM:.0%} or less: {met}."
    )
