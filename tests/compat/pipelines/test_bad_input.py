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
from nodes.topics import Server, Topics
from peers.client import Client
from postgres_server import NoPostgres, running_postgres
from pyspark.sql import SparkSession
from runner_files import OTTLA, Driver, pipeline_in, run_once, write_lines
from small_disk import NoSmallDisk, small_disk

from ottla.client import TopicPartition
from ottla.pipelines.run.checkpoint import Checkpoint
from ottla.pipelines.run.consumed import publish_offsets
from ottla.pipelines.spark.queries import GaveUp
from ottla.pipelines.spec.identity import PipelineIdentity

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


def three_topics(server: Server, topics: Topics) -> dict[str, str]:
    return {name: topics.create(server) for name in ("orders", "results", "dead")}


def produce(server: Server, topic: str, *values: bytes | None) -> None:
    producer = Client(server.bootstrap).producer(**{"message.max.bytes": 4_000_000})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def delete(server: Server, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})  # Kept until the answer is there.
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=120).topics, f"{topic} is gone")


def orders(*ids: int) -> list[bytes]:
    return [b'{"id": %d, "city": "Berne", "total": 1}' % number for number in ids]


def ids_in(server: Server, topic: str) -> list[int]:
    return sorted(json.loads(record.value() or b"")["id"] for record in committed(server.bootstrap, topic, 1))


def test_schema_that_changes_in_mid_stream_and_nulls(
    spark: SparkSession, server: Server, topics: Topics, tmp_path: Path
) -> None:
    """A column more is passed over, one less is null; one of another type is a dead letter, like text that is null."""
    names = three_topics(server, topics)
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
    produce(server, names["orders"], *mixed)
    done = run_once(spark, tmp_path, pipeline_in(tmp_path, ORDERS.format(name=topics.name(), **names)), server)
    assert (done.state, done.sinks["out"].records_read) == ("finished", len(mixed))
    written = [json.loads(record.value() or b"") for record in committed(server.bootstrap, names["results"], 1)]
    found = sorted((row.get("id"), row.get("city"), row.get("total")) for row in written if row.get("id"))
    assert found == [(1, "Berne", 1.5), (2, "Chur", 2.0), (3, None, 3.0), (4, None, None)]
    assert len(written) == len(fitting)
    letters = [record.value() for record in committed(server.bootstrap, names["dead"], 1)]
    assert sorted(value or b"" for value in letters) == sorted(others)


def test_records_at_the_size_limit_pass_and_those_beyond_stop_the_pipeline(
    spark: SparkSession, server: Server, topics: Topics, tmp_path: Path
) -> None:
    """Raising the limit is all there is to do: the next run writes what was left, once."""
    large = "3000000"
    names = {"orders": topics.create(server, max_message_bytes=large), "results": topics.create(server)}
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
    produce(server, names["orders"], b"first", fitting, beyond, b"last")
    with pytest.raises(GaveUp, match=r"MESSAGE_TOO_LARGE\). Raise max.message.bytes of the topic"):
        run_once(spark, tmp_path, pipeline, server)
    assert [record.value() for record in committed(server.bootstrap, names["results"], 1)] == [b"first", fitting]
    Client(server.bootstrap).alter_topic(names["results"], {"max.message.bytes": large})
    run_once(spark, tmp_path, pipeline, server)
    written = [record.value() for record in committed(server.bootstrap, names["results"], 1)]
    assert sorted(written) == sorted([b"first", fitting, beyond, b"last"])


def test_topic_that_vanishes_stops_the_pipeline(
    spark: SparkSession, server: Server, topics: Topics, tmp_path: Path
) -> None:
    names = three_topics(server, topics)
    pipeline = pipeline_in(tmp_path, ORDERS.format(name=topics.name(), **names))
    produce(server, names["orders"], *orders(1, 2, 3))
    run_once(spark, tmp_path, pipeline, server)
    produce(server, names["orders"], *orders(4))
    delete(server, names["orders"])
    with pytest.raises(
        GaveUp, match=rf"topic {names['orders']}, partition 0 no longer exists; the pipeline had reached 3"
    ):
        run_once(spark, tmp_path, pipeline, server)
    assert ids_in(server, names["results"]) == [1, 2, 3]


def test_sink_topic_that_vanishes_stops_the_pipeline_and_a_person_lets_it_go_on(
    spark: SparkSession, server: Server, topics: Topics, tmp_path: Path
) -> None:
    """Its markers went with it. What the reason says can be done is done: the epoch that was not written comes then."""
    names = three_topics(server, topics)
    pipeline = pipeline_in(tmp_path, ORDERS.format(name=topics.name(), **names))
    produce(server, names["orders"], *orders(1, 2, 3))
    first = run_once(spark, tmp_path, pipeline, server)
    delete(server, names["results"])
    produce(server, names["orders"], *orders(4))
    epoch = first.sinks["out"].epoch + 1
    with pytest.raises(GaveUp, match=rf"or the sink's topic was deleted.* commit {epoch} \(not written\)"):
        run_once(spark, tmp_path, pipeline, server)
    group_id = PipelineIdentity(pipeline.name).marker_group_id("out", 0)
    publish_offsets(server.bootstrap, group_id, {TopicPartition(names["results"], 0): epoch})
    assert run_once(spark, tmp_path, pipeline, server).state == "finished"
    assert ids_in(server, names["results"]) == [4]


def test_full_disk_under_the_checkpoint_is_waited_for(ottla: OttlaNode, topics: Topics, tmp_path: Path) -> None:
    """The run says what is wrong, and goes on by itself when there is room."""
    names = three_topics(ottla, topics)
    written = partial(ids_in, ottla, names["results"])
    try:
        with small_disk(tmp_path / "disk", 1 << 20) as disk:
            text = f'checkpoint = "{disk.mount_point}/checkpoint"\n' + ORDERS.format(name=topics.name(), **names)
            pipeline_in(tmp_path, text)
            checkpoint = Checkpoint(f"{disk.from_outside}/checkpoint")
            produce(ottla, names["orders"], *orders(1))
            driver = Driver(tmp_path, ottla, once=False, program=disk.inside(str(OTTLA), directory=tmp_path))
            try:
                driver.wait_until(lambda: written() == [1], "the first record is written")
                ballast = disk.fill()
                produce(ottla, names["orders"], *orders(2, 3))
                driver.wait_until(lambda: "pipeline.restarts sink=out" in driver.log(), "the epoch fails")
                assert "A disk is full: the checkpoint's" in driver.log()
                driver.wait_until(lambda: "pipeline.status_not_kept" in driver.log(), "the status cannot be kept")
                ballast.unlink()
                produce(ottla, names["orders"], *orders(4))
                driver.wait_until(lambda: len(written()) == 4, "what was left is written")
                driver.stop()
                assert driver.wait() == 0
            finally:
                if driver.running:
                    driver.kill()
            told = checkpoint.status()
            assert told is not None
            assert (told.state, told.sinks["out"].rows_written) == ("stopped", 4)
    except NoSmallDisk as reason:
        pytest.skip(f"this system lets nobody mount a small disk: {reason}")
    assert written() == [1, 2, 3, 4]


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
