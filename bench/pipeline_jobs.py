"""The jobs that pipelines are measured with, whoever runs them: what is read, where it goes, what must come out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from time import perf_counter
from typing import Final, NamedTuple, TypedDict

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.nodes import cpu_s_of

TO_PARQUET, TO_TOPIC, REFERENCE = "topic to parquet", "topic to topic", "reference job"
PIPELINE, SOURCE, CONNECTOR, FLINK = "pipeline", "source", "connector", "Flink SQL"
_TIMEOUT_S: Final = 60
_numbers = count(1)


class Job(TypedDict):
    kind: str
    way: str
    bootstrap: str
    broker_pid: int
    topic: str
    """There before, and full."""
    records: int
    partitions: int
    jars: list[str]


class Run(TypedDict):
    """Of a job, from the beginning of the topic to its end."""

    wall_s: float
    """All of it."""
    steady_s: float
    """Of that, the epochs: without planning and starting the query, and without its end."""
    cpu_s: float
    """Of whoever ran it, all processes together."""
    broker_cpu_s: float
    rows: int
    """That came out."""


class Did(NamedTuple):
    """What whoever runs a job tells of one run."""

    steady_s: float
    rows: int | None
    """None: they are in the topic."""


def measured(job: Job, act: Callable[[str], Did], cpu_s: Callable[[], float]) -> Run:
    """One run, with a name that no other run has: that of the topic for its results, which goes when it has ended.

    `cpu_s` tells what whoever runs the job has spent so far.
    """
    name = f"bench-{job['kind']}-{job['way']}-{next(_numbers)}".replace(" ", "-").lower()
    with _topic(job, name):
        started, before_s, broker_before_s = perf_counter(), cpu_s(), cpu_s_of(job["broker_pid"])
        did = act(name)
        wall_s, spent_s = perf_counter() - started, cpu_s() - before_s
        broker_cpu_s = cpu_s_of(job["broker_pid"]) - broker_before_s
        rows = did.rows if did.rows is not None else _committed(job, name)
    expected = job["records"] if job["kind"] != REFERENCE else rows  # Windows that are not final may stay inside.
    if rows != expected or not rows:
        raise RuntimeError(f"{name}: of {job['records']:,} records {rows:,} came out")
    return Run(wall_s=wall_s, steady_s=did.steady_s, cpu_s=spent_s, broker_cpu_s=broker_cpu_s, rows=rows)


@contextmanager
def _topic(job: Job, name: str) -> Iterator[None]:
    admin = AdminClient({"bootstrap.servers": job["bootstrap"]})
    admin.create_topics([NewTopic(name, job["partitions"], 1)])[name].result(_TIMEOUT_S)
    yield
    admin.delete_topics([name])[name].result(_TIMEOUT_S)


def _committed(job: Job, topic: str) -> int:
    """How many records a reader gets. Offsets do not tell: the markers of transactions have some, too."""
    settings = {"bootstrap.servers": job["bootstrap"], "group.id": "bench", "enable.partition.eof": True}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(job["partitions"])])
    rows = ended = 0
    while ended < job["partitions"]:
        for message in consumer.consume(10_000, 1):
            ended += message.error() is not None
            rows += message.error() is None
    consumer.close()
    return rows
