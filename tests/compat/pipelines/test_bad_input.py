"""What a pipeline makes of input and surroundings that go wrong: dead letters, another attempt, or a reason to stop."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest
from committed_records import committed
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]
from nodes.ottla_node import OttlaNode, wait_until
from nodes.topics import Topics
from peers.client import Client
from postgres_server import NoPostgres, running_postgres
from pyspark.sql import SparkSession
from runner_files import pipeline_in, run_once, write_lines

from ottla.pipelines.spark.queries import GaveUp

ORDERS = """
name = "{name}"
[source.orders]
topic = "{orders}"
parse = "json"
schema = "id BIGINT, city STRING, total DOUBLE"
max_records_per_batch = 4
[sink.out]
topic = "{results}"
input = "orders"
parallelism = 1
[errors]
dead_letter = "{dead}"
max_rate = 0.9
"""


def three_topics(ottla: OttlaNode, topics: Topics) -> dict[str, str]:
    return {name: topics.create(ottla) for name in ("orders", "results", "dead")}


def produce(ottla: OttlaNode, topic: str, *values: bytes | None) -> None:
    producer = Client(ottla.bootstrap).producer(**{"message.max.bytes": 4_000_000})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def delete(ottla: OttlaNode, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": ottla.bootstrap})  # Kept until the answer is there.
    admin.delete_topics([topic])[topic].result(30)


def test_schema_that_changes_in_mid_stream_and_nulls(
    spark: SparkSession, ottla: OttlaNode, topics: Topics, tmp_path: Path
) -> None:
    """A column more is passed over, one less is null; one of another type is a dead letter, like text that is null."""
    names = three_topics(ottla, topics)
    fitting = [
        b'{"id": 1, "city": "Berne", "total": 1.5}',
        b'{"id": 2, "city": "Chur", "total": 2, "courier": {"name": "Vreni"}}',
        b'{"id": 3, "total": 3}',
        b'{"id": 4, "city": null, "total": null}',
        None,
        b"{}",
    ]
    others = [
        b'{"id": "five", "city": "Berne", "total": 5}',
        b'{"id": 6, "city": "Berne", "total": {"francs": 6}}',
        b'{"id": 7.5, "city": "Berne", "total": 7}',
        b"null",
        b'[{"id": 8}, {"id": 9}]',
        b"",
    ]
    mixed = [value for pair in zip(fitting, others, strict=True) for value in pair]
    produce(ottla, names["orders"], *mixed)
    done = run_once(spark, tmp_path, pipeline_in(tmp_path, ORDERS.format(name=topics.name(), **names)), ottla)
    assert (done.state, done.sinks["out"].records_read) == ("finished", len(mixed))
    written = [json.loads(record.value() or b"") for record in committed(ottla.bootstrap, names["results"], 1)]
    found = sorted((row.get("id"), row.get("city"), row.get("total")) for row in written if row.get("id"))
    assert found == [(1, "Berne", 1.5), (2, "Chur", 2.0), (3, None, 3.0), (4, None, None)]
    assert len(written) == len(fitting)
    letters = [record.value() for record in committed(ottla.bootstrap, names["dead"], 1)]
    assert sorted(value or b"" for value in letters) == sorted(others)


def test_records_at_the_size_limit_pass_and_those_beyond_stop_the_pipeline(
    spark: SparkSession, ottla: OttlaNode, topics: Topics, tmp_path: Path
) -> None:
    """Raising the limit is all there is to do: the next run writes what was left, once."""
    large = "3000000"
    names = {"orders": topics.create(ottla, max_message_bytes=large), "results": topics.create(ottla)}
    text = """
name = "{name}"
[source.orders]
topic = "{orders}"
parse = "bytes"
max_records_per_batch = 2
[[step]]
sql = "SELECT value FROM orders"
[sink.out]
topic = "{results}"
serialise = "bytes"
parallelism = 1
"""
    pipeline = pipeline_in(tmp_path, text.format(name=topics.name(), **names))
    largest = 1_048_588 - 61 - 11  # max.message.bytes by default, without the heads of the batch and of the record.
    fitting, beyond = b"f" * largest, b"b" * (largest + 1)
    produce(ottla, names["orders"], b"first", fitting, beyond, b"last")
    with pytest.raises(GaveUp, match=r"MESSAGE_TOO_LARGE\). Raise max.message.bytes of the topic"):
        run_once(spark, tmp_path, pipeline, ottla)
    assert [record.value() for record in committed(ottla.bootstrap, names["results"], 1)] == [b"first", fitting]
    Client(ottla.bootstrap).alter_topic(names["results"], {"max.message.bytes": large})
    run_once(spark, tmp_path, pipeline, ottla)
    written = [record.value() for record in committed(ottla.bootstrap, names["results"], 1)]
    assert sorted(written) == sorted([b"first", fitting, beyond, b"last"])


def test_topic_that_vanishes_stops_the_pipeline(
    spark: SparkSession, ottla: OttlaNode, topics: Topics, tmp_path: Path
) -> None:
    names = three_topics(ottla, topics)
    pipeline = pipeline_in(tmp_path, ORDERS.format(name=topics.name(), **names))
    produce(ottla, names["orders"], *[b'{"id": 1, "city": "Berne", "total": 1}'] * 3)
    run_once(spark, tmp_path, pipeline, ottla)
    produce(ottla, names["orders"], b'{"id": 2, "city": "Berne", "total": 1}')
    delete(ottla, names["orders"])
    with pytest.raises(
        GaveUp, match=rf"topic {names['orders']}, partition 0 does not exist any more; the pipeline had come to 3"
    ):
        run_once(spark, tmp_path, pipeline, ottla)
    assert len(committed(ottla.bootstrap, names["results"], 1)) == 3


def test_postgres_restarted_in_the_middle_of_an_epoch(spark: SparkSession, tmp_path: Path) -> None:
    """The epoch that it forgot is written again when it is back."""
    text = """
name = "restarted"
[source.orders]
files = "in"
parse = "json"
schema = "id BIGINT"
max_files_per_batch = 1
[sink.table]
postgres = "{url}"
table = "orders"
"""
    for file in range(3):
        write_lines(tmp_path / "in" / f"{file}.json", [{"id": file * 10 + row} for row in range(10)])
    try:
        with running_postgres() as server, ThreadPoolExecutor(1) as thread:
            pipeline = pipeline_in(tmp_path, text.format(url=server.url))
            connect = partial(psycopg.connect, server.url)
            with closing(connect(autocommit=True)) as watching, closing(connect()) as holding:
                watching.execute("CREATE TABLE orders (id bigint)")
                holding.execute("LOCK TABLE orders IN SHARE MODE")  # Whoever writes it waits.
                done = thread.submit(run_once, spark, tmp_path, pipeline)
                waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'orders'::regclass AND NOT granted"
                wait_until(lambda: watching.execute(waiting).fetchone() == (1,), "an epoch waits to be written", 120)
                os.kill(holding.info.backend_pid, signal.SIGKILL)  # PostgreSQL cuts all off then, and starts anew.
            status = done.result(180)
            assert (status.state, status.sinks["table"].rows_written) == ("finished", 30)
            assert status.sinks["table"].restarts >= 1
            with psycopg.connect(server.url) as connection:
                rows = connection.execute("SELECT id FROM orders ORDER BY id").fetchall()
            assert rows == [(number,) for number in range(30)]
    except NoPostgres as missing:
        pytest.skip(str(missing))
