"""One job of a pipeline on Spark, one way, in a process of its own: `python -m bench.pipeline_load`.

Its standard input has the job as a line of JSON, its standard output gets the result as one. The topic that is read is
there before. Spark is started before what is measured; the first run is cold, as the JVM has seen nothing like it.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypedDict

import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

from bench.nodes import cpu_s_of
from bench.pipelines import CONNECTOR, PIPELINE, REFERENCE, TO_PARQUET, TO_TOPIC
from ottla.pipelines.files import parse_toml
from ottla.pipelines.spark.run import PipelineRun, RunOptions
from ottla.pipelines.spark.session import SessionOptions, open_session
from ottla.pipelines.spark.topic_source import CAUGHT_UP, read_stream
from ottla.pipelines.spec import TopicSource

COLUMNS: Final = "id BIGINT, city STRING, total DOUBLE, event_time TIMESTAMP, note STRING"
EPOCHS: Final = 8
"""In each run, if there is enough for them."""
_PER_EPOCH_MIN: Final = 4000
_TIMEOUT_S: Final = 60
_COUNTED: Final = "count(*) AS n, sum(total) AS total"
_runs = count(1)

_SOURCE: Final = """
name = "{name}"
[source.events]
topic = "{topic}"
max_records_per_batch = {records_per_epoch}
"""
_PIPELINES: Final = {
    TO_PARQUET: """
parse = "bytes"
[[step]]
sql = "SELECT value FROM events"
[sink.out]
parquet = "out"
""",
    TO_TOPIC: """
parse = "bytes"
[[step]]
sql = "SELECT _key, value FROM events"
[sink.out]
topic = "{target}"
key = "_key"
serialise = "bytes"
parallelism = 2
""",
    REFERENCE: f"""
parse = "json"
schema = "{COLUMNS}"
[[step]]
sql = '''
SELECT window(event_time, '60 seconds') AS w, city, {_COUNTED} FROM events WHERE total >= 10 GROUP BY 1, 2
'''
watermark = {{{{ column = "event_time", delay = "60 seconds" }}}}
[sink.out]
topic = "{{target}}"
key = "city"
parallelism = 2
""",
}


class Job(TypedDict):
    kind: str
    way: str
    bootstrap: str
    broker_pid: int
    topic: str
    records: int
    partitions: int
    runs: int
    """After the cold one."""
    jars: list[str]


class Result(TypedDict):
    cold_s: float
    """The first run, from the start of its query to its end."""
    steady_s: float
    """The least that the epochs of a later run took together."""
    broker_cpu_s: float
    """In that run."""
    rows: int
    """That came out of one run."""


@dataclass(frozen=True)
class Made:
    wall_s: float
    epochs_s: float
    broker_cpu_s: float
    rows: int


def measure(spark: SparkSession, job: Job) -> Result:
    cold = _run(spark, job)
    warm = [_run(spark, job) for _ in range(job["runs"])]
    best = min(warm, key=lambda made: made.epochs_s)
    return Result(cold_s=cold.wall_s, steady_s=best.epochs_s, broker_cpu_s=best.broker_cpu_s, rows=best.rows)


def _run(spark: SparkSession, job: Job) -> Made:
    """From the beginning of the topic to its end, with names, a checkpoint and results that no other run has."""
    name = f"bench-{job['kind'].replace(' ', '-')}-{job['way']}-{next(_runs)}"
    admin = AdminClient({"bootstrap.servers": job["bootstrap"]})
    admin.create_topics([NewTopic(name, job["partitions"], 1)])[name].result(_TIMEOUT_S)
    with TemporaryDirectory() as home:
        run = _by_pipeline if job["way"] == PIPELINE else _by_query
        started, cpu_s = time.perf_counter(), cpu_s_of(job["broker_pid"])
        epochs_s = run(spark, job, name, home)
        wall_s, cpu_s = time.perf_counter() - started, cpu_s_of(job["broker_pid"]) - cpu_s
        files = Path(home, "out").glob("**/*.parquet")
        rows = sum(pq.read_metadata(path).num_rows for path in files) or _committed(job, name)
    admin.delete_topics([name])[name].result(_TIMEOUT_S)
    expected = job["records"] if job["kind"] != REFERENCE else rows  # Windows that are not final stay inside.
    if rows != expected or not rows:
        raise RuntimeError(f"{name}: of {job['records']:,} records {rows:,} came out")
    return Made(wall_s, epochs_s, cpu_s, rows)


def _by_pipeline(spark: SparkSession, job: Job, name: str, home: str) -> float:
    """As `ottla pipeline run --once` does it, exactly once."""
    text = (_SOURCE + _PIPELINES[job["kind"]]).format(
        name=name, topic=job["topic"], target=name, records_per_epoch=_per_epoch(job)
    )
    done = PipelineRun(
        spark, parse_toml(text.encode(), f"{home}/pipeline.toml"), RunOptions(home, job["bootstrap"], once=True)
    )
    (sink,) = done.run(lambda _: None).sinks.values()
    if sink.restarts:
        raise RuntimeError(f"{name}: the query failed and began again: {sink.error}")
    return sum(sink.batch_ms) / 1000


def _by_query(spark: SparkSession, job: Job, name: str, home: str) -> float:
    """As somebody writes it who has Spark alone, or Spark and our source."""
    read = _with_connector(spark, job) if job["way"] == CONNECTOR else _with_source(spark, job)
    out = _BY_HAND[job["kind"]](read).writeStream.option("checkpointLocation", f"{home}/checkpoint")
    if job["kind"] == TO_PARQUET:
        out = out.format("parquet").option("path", f"{home}/out")
    else:
        out = out.format("kafka").option("kafka.bootstrap.servers", job["bootstrap"]).option("topic", name)
    query = (out.trigger(availableNow=True) if job["way"] == CONNECTOR else out).start()
    if job["way"] == CONNECTOR:
        query.awaitTermination()
    else:
        query.processAllAvailable()
        query.stop()
    return _epochs_s(query)


def _with_source(spark: SparkSession, job: Job) -> DataFrame:
    pipeline = parse_toml(
        (_SOURCE + _PIPELINES[TO_PARQUET])
        .format(name="bench", topic=job["topic"], records_per_epoch=_per_epoch(job))
        .encode(),
        "source.toml",
    )
    (source,) = pipeline.sources
    assert isinstance(source, TopicSource)
    frame = read_stream(spark, source, job["bootstrap"], until=CAUGHT_UP)
    return frame.withColumnsRenamed({"_key": "key", "_value": "value"})


def _with_connector(spark: SparkSession, job: Job) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job["bootstrap"])
        .option("subscribe", job["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", _per_epoch(job))
        .option("kafka.isolation.level", "read_committed")
        .load()
    )


def _counted(frame: DataFrame) -> DataFrame:
    events = frame.select(F.from_json(F.col("value").cast("string"), COLUMNS).alias("event")).select("event.*")
    windows = (
        events.where("total >= 10")
        .withWatermark("event_time", "60 seconds")
        .groupBy(F.window("event_time", "60 seconds").alias("w"), "city")
        .agg(F.count("*").alias("n"), F.sum("total").alias("total"))
    )
    return windows.select(F.col("city").alias("key"), F.to_json(F.struct("w", "city", "n", "total")).alias("value"))


_BY_HAND: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    TO_PARQUET: lambda frame: frame.select("value"),
    TO_TOPIC: lambda frame: frame.select("key", "value"),
    REFERENCE: _counted,
}


def _per_epoch(job: Job) -> int:
    return max(_PER_EPOCH_MIN, -(-job["records"] // EPOCHS))


def _epochs_s(query: StreamingQuery) -> float:
    told: list[dict[str, int]] = [json.loads(progress.json)["durationMs"] for progress in query.recentProgress]
    return sum(took["triggerExecution"] for took in told if "addBatch" in took) / 1000


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


def main() -> None:
    job: Job = json.loads(sys.stdin.readline())
    settings = {"spark.jars": ",".join(job["jars"])} if job["jars"] else {}
    spark = open_session(SessionOptions("bench", "local[2]", settings))
    try:
        print(json.dumps(measure(spark, job)), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
