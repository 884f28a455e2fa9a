"""One job of a pipeline on Spark, in its own process: `python -m bench.pipeline_load`.

Standard input has the job as a line of JSON, and then a line for each run; standard output gets a line when Spark has
started, and the result of each run as JSON. The first run is cold: the JVM has compiled nothing yet.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.streaming.query import StreamingQuery

from bench.nodes import TICK_S
from bench.pipeline_jobs import CONNECTOR, PIPELINE, REFERENCE, TO_PARQUET, TO_TOPIC, Did, Job, Run, measured
from ottla.pipelines.authoring.files import parse_toml
from ottla.pipelines.source.columns_read import columns_read
from ottla.pipelines.spark.run import PipelineRun, RunOptions
from ottla.pipelines.spark.session import SessionOptions, open_session
from ottla.pipelines.spark.topic_source import CAUGHT_UP, read_stream
from ottla.pipelines.spec.model import TopicSource

COLUMNS: Final = "id BIGINT, city STRING, total DOUBLE, event_time TIMESTAMP, note STRING"
EPOCHS: Final = 4
"""In each run, if there are enough records."""
_PER_EPOCH_MIN: Final = 4000
_COUNTED: Final = "count(*) AS n, sum(total) AS total"

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


def run(spark: SparkSession, job: Job) -> Run:
    """With a unique checkpoint and result topic."""

    def act(name: str) -> Did:
        by = _by_pipeline if job["way"] == PIPELINE else _by_query
        steady_s = by(spark, job, name, home)
        files = Path(home, "out").glob("**/*.parquet")
        rows = sum(pq.read_metadata(path).num_rows for path in files)
        return Did(steady_s, rows if job["kind"] == TO_PARQUET else None)

    with TemporaryDirectory() as home:
        return measured(job, act, lambda: _cpu_s_of_session(os.getsid(0)))


def _cpu_s_of_session(session: int) -> float:
    """User and system time of Spark's driver and JVM, of Python's workers, and of their ended children."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # It has just ended; its parent has its time.
        if int(fields[3]) == session:
            ticks += sum(int(field) for field in fields[11:15])
    return ticks * TICK_S


def _by_pipeline(spark: SparkSession, job: Job, name: str, home: str) -> float:
    """As `ottla pipeline run --once`, exactly once."""
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
    """As a user of Spark alone, or of Spark with Ottla's source, writes it."""
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
    columns = columns_read(pipeline, source)
    frame = read_stream(spark, source, job["bootstrap"], until=CAUGHT_UP, columns=columns)
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


def main() -> None:
    job: Job = json.loads(sys.stdin.readline())
    settings = {"spark.jars": ",".join(job["jars"])} if job["jars"] else {}
    spark = open_session(SessionOptions("bench", "local[2]", settings))
    try:
        print("ready", flush=True)
        for _ in sys.stdin:
            print(json.dumps(run(spark, job)), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
