"""Pipelines on Spark, with either broker, beside Spark's own Kafka connector."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka import Producer

from bench.connector import NoConnector, connector_jars
from bench.growth import make_topic
from bench.nodes import Broker, Kafka, Node, Ottla
from bench.raw_client import RawConnection
from bench.report import Section, Table
from bench.sizes import Sizes

RATE_AIM: Final = 1.0
"""Of the connector's records a second: of our source, and of our sink, which writes each record once."""
BROKER_AIM: Final = 0.5
"""Of the time that the epochs took, on the CPU: a broker that needs no more has not held anybody up."""
RECORDS: Final = 2_000_000
PARTITIONS: Final = 4
_TOPIC: Final = "events"
_VALUE_BYTES: Final = 200
_CITIES: Final = 100
_EVENT_TIME_S: Final = 3600
"""From the first event to the last, however many there are."""
_TIMEOUT_S: Final = 120
_SETTINGS: Final = {
    "log.retention.ms": -1,
    "offsets.topic.num.partitions": 5,
    "transaction.state.log.num.partitions": 5,
}

TO_PARQUET, TO_TOPIC, REFERENCE = "topic to parquet", "topic to topic", "reference job"
PIPELINE, SOURCE, CONNECTOR = "pipeline", "source", "connector"
WAYS: Final = (
    (TO_PARQUET, PIPELINE),
    (TO_PARQUET, SOURCE),
    (TO_PARQUET, CONNECTOR),
    (TO_TOPIC, PIPELINE),
    (TO_TOPIC, CONNECTOR),
    (REFERENCE, PIPELINE),
    (REFERENCE, CONNECTOR),
)
_AIMS: Final = (
    (TO_PARQUET, SOURCE, "our source against the connector's, both into Spark's own Parquet sink"),
    (TO_TOPIC, PIPELINE, "our exactly-once sink against the connector's at-least-once one"),
)

Rates = dict[tuple[str, str, str], float]
"""Records a second, steady, by broker, job and way."""


def run(sizes: Sizes) -> Section:
    records = max(int(RECORDS * sizes.broker_scale), 1000)
    section = Section(
        "Pipelines",
        f"{records:,} JSON records of {_VALUE_BYTES} B in {PARTITIONS} partitions, read from the first to the last in "
        "8 epochs, on `local[2]` beside the broker on the same cores. `pipeline` is `ottla pipeline run --once`, "
        "exactly once; `source` is our source and Spark's own Parquet sink; `connector` is Spark's Kafka connector as "
        "source and as sink, which writes at least once. The reference job parses, filters, and counts and sums by key "
        "in windows of 60 s, into a topic. Each in a process of its own: the first run is cold (all of it, but for the "
        "start of Spark), the best of the later ones steady (its epochs). CPU is user and system time of the broker's "
        "process in the steady run.",
    )
    jars = _jars(section)
    table = Table(
        "Records a second", ["broker, job", "way", "cold records/s", "steady records/s", "broker CPU s", "of the time"]
    )
    rates: Rates = {}
    with TemporaryDirectory() as home, ExitStack() as running:
        for broker in _brokers(sizes):
            node = Node(broker, Path(home) / broker.name)
            running.callback(node.stop)
            fill(node, records)
            for kind, way in WAYS:
                if sizes.load in kind and (jars or way != CONNECTOR):
                    result = _measured(node, kind, way, records, sizes.broker_rounds, jars)
                    _take(result, table, rates, node.name, kind, way, records, section)
    section.tables.append(table)
    section.findings += _compared(rates)
    return section


def _brokers(sizes: Sizes) -> list[Broker]:
    return [Ottla(_SETTINGS), *([Kafka(_SETTINGS)] if sizes.against_kafka else [])]


def _jars(section: Section) -> list[str]:
    try:
        return [str(path) for path in connector_jars()]
    except NoConnector as missing:
        section.findings.append(
            f"Spark's Kafka connector is not to be had, and nothing is compared with it: {missing}."
        )
        return []


def fill(node: Node, records: int) -> None:
    """The topic that every job reads."""
    make_topic(RawConnection(node.port), PARTITIONS, _TOPIC)
    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "linger.ms": 5, "queue.buffering.max.messages": records + 1}
    )
    for number in range(records):
        city = f"city-{number * 7919 % _CITIES}"
        producer.produce(_TOPIC, event(number, records, city), key=city, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    if left := producer.flush(_TIMEOUT_S):
        raise RuntimeError(f"{node.name} did not take {left} of {records} records")


def event(number: int, records: int, city: str) -> bytes:
    second = number * _EVENT_TIME_S // records
    at = f"2026-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
    text = json.dumps({"id": number, "city": city, "total": number % 97, "event_time": at, "note": ""})
    return (text[:-2] + "n" * (_VALUE_BYTES - len(text)) + text[-2:]).encode()


def job_of(node: Node, kind: str, way: str, records: int, runs: int, jars: list[str]) -> dict[str, object]:
    return {
        "kind": kind,
        "way": way,
        "bootstrap": node.bootstrap,
        "broker_pid": node.pid,
        "topic": _TOPIC,
        "records": records,
        "partitions": PARTITIONS,
        "runs": runs,
        "jars": jars if way == CONNECTOR else [],
    }


def _measured(node: Node, kind: str, way: str, records: int, runs: int, jars: list[str]) -> dict[str, float]:
    job = job_of(node, kind, way, records, runs, jars)
    command = [sys.executable, "-m", "bench.pipeline_load"]
    done = subprocess.run(command, input=json.dumps(job) + "\n", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{node.name}, {kind}, {way}:\n{done.stderr[-4000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _take(
    result: dict[str, float],
    table: Table,
    rates: Rates,
    broker: str,
    kind: str,
    way: str,
    records: int,
    section: Section,
) -> None:
    steady_s, cpu_s = result["steady_s"], result["broker_cpu_s"]
    rates[broker, kind, way] = records / steady_s
    cold = records / result["cold_s"]
    table.add(f"{broker}, {kind}", way, cold, records / steady_s, cpu_s, f"{cpu_s / steady_s:.0%}")
    if cpu_s > BROKER_AIM * steady_s:
        section.findings.append(
            f"{broker}, {kind}, {way}: the broker was on the CPU for {cpu_s / steady_s:.0%} of the time, "
            f"aim {BROKER_AIM:.0%}: MISSED."
        )


def _compared(rates: Rates) -> list[str]:
    findings = []
    for broker in dict.fromkeys(name for name, _, _ in rates):
        for kind, way, what in _AIMS:
            if (broker, kind, CONNECTOR) in rates:
                ratio = rates[broker, kind, way] / rates[broker, kind, CONNECTOR]
                met = "met" if ratio >= RATE_AIM else "MISSED"
                findings.append(f"{broker}: {what}: {ratio:.2f} x, aim {RATE_AIM:.1f} x or more: {met}.")
        if (broker, REFERENCE, CONNECTOR) in rates:
            ratio = rates[broker, REFERENCE, PIPELINE] / rates[broker, REFERENCE, CONNECTOR]
            findings.append(f"{broker}: the reference job, exactly once, against the connector: {ratio:.2f} x.")
    return findings
