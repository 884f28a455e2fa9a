"""The jobs of the pipeline benchmark, for every engine: input, output, expected result."""

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
    """It exists and is full."""
    records: int
    partitions: int
    jars: list[str]


class Run(TypedDict):
    """One run of a job, from the beginning of the topic to its end."""

    wall_s: float
    """The whole run."""
    steady_s: float
    """Only the epochs: without planning, starting and ending the query."""
    cpu_s: float
    """Of the engine, all processes together."""
    broker_cpu_s: float
    rows: int
    """The number of results."""


class Did(NamedTuple):
    """What the engine reports of one run."""

    steady_s: float
    rows: int | None
    """None: they are in the topic."""


def measured(job: Job, act: Callable[[str], Did], cpu_s: Callable[[], float]) -> Run:
    """One run with a unique name, used for the topic of its results, which is deleted afterwards. `cpu_s` returns the
    engine's CPU seconds so far."""
    name = f"bench-{job['kind']}-{job['way']}-{next(_numbers)}".replace(" ", "-").lower()
    with _topic(job, name):
        started, before_s, broker_before_s = perf_counter(), cpu_s(), cpu_s_of(job["broker_pid"])
        did = act(name)
        wall_s, spent_s = perf_counter() - started, cpu_s() - before_s
        broker_cpu_s = cpu_s_of(job["broker_pid"]) - broker_before_s
        rows = did.rows if did.rows is not None else _committed(job, name)
    expected = job["records"] if job["kind"] != REFERENCE else rows  # Windows that are not final may not be written.
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
    """The number of records a reader gets. Offsets do not tell, because transaction markers have offsets too."""
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
