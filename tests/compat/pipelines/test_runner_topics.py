"""Pipelines from topics to topics, run as `ottla pipeline run --once` runs them."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from committed_records import committed
from nodes.ottla_node import OttlaNode
from nodes.topics import Server, Topics
from peers.client import Client
from pyspark.sql import SparkSession
from runner_files import pipeline_in, run_once

from ottla.client import Client as OttlaClient
from ottla.client import TopicPartition
from ottla.client.group_offsets import committed_offsets
from ottla.pipelines.run.checkpoint import SinkStatus
from ottla.pipelines.run.failures import TooManyFailures
from ottla.pipelines.sink import dead_letters
from ottla.pipelines.spark.queries import GaveUp
from ottla.pipelines.spark.replay import ReplayRun, ReplaySpan
from ottla.pipelines.spark.run import RunOptions

ORDERS = """
name = "{name}"
[source.orders]
topic = "{orders}"
parse = "json"
schema = "city STRING, total DOUBLE, event_time TIMESTAMP"
[[step]]
sql = '''
SELECT window(event_time, '1 minute') AS w, city, count(*) AS n, sum(total) AS total FROM orders GROUP BY 1, 2
'''
watermark = {{ column = "event_time", delay = "2 minutes" }}
[sink.per_minute]
topic = "{results}"
key = "city"
[errors]
dead_letter = "{dead}"
max_rate = 0.5
"""


def order(city: str, minute: int, total: float) -> bytes:
    return json.dumps({"city": city, "total": total, "event_time": f"2026-01-01T00:{minute:02d}:10Z"}).encode()


def produce(server: Server, topic: str, values: Iterable[bytes | None], **record: Any) -> None:
    producer = Client(server.bootstrap).producer()
    for value in values:
        producer.produce(topic, value, **record)
    assert producer.flush(30) == 0


def results(server: Server, topic: str) -> list[tuple[bytes, int, int, float]]:
    """Key, minute, count and sum."""
    found = []
    for record in committed(server.bootstrap, topic, 1):
        value = json.loads(record.value())
        found.append((record.key(), int(value["w"]["start"][14:16]), value["n"], value["total"]))
    return sorted(found)


def test_windows_of_a_topic_into_a_topic(spark: SparkSession, server: Server, topics: Topics, tmp_path: Path) -> None:
    """Each window comes once, when it is final; what cannot be parsed is a dead letter; the next run goes on."""
    names = {"orders": topics.create(server), "results": topics.create(server), "dead": topics.create(server)}
    pipeline = pipeline_in(tmp_path, ORDERS.format(name=topics.name(), **names))
    produce(server, names["orders"], [order("Berne", 1, 2.0), order("Berne", 1, 3.0), order("Chur", 2, 1.0)])
    produce(server, names["orders"], [b"{ broken"], key=b"the key", headers=[("from", b"shop")])
    produce(server, names["orders"], [order("Berne", 9, 7.0)])
    first = run_once(spark, tmp_path, pipeline, server)
    assert (first.state, first.sinks["per_minute"].dead_letters) == ("finished", 1)
    assert results(server, names["results"]) == [(b"Berne", 1, 2, 5.0), (b"Chur", 2, 1, 1.0)]

    late = order("Berne", 1, 100.0)
    produce(server, names["orders"], [late, order("Chur", 30, 4.0), b'{"city": 1, "total": "no number"}'])
    second = run_once(spark, tmp_path, pipeline, server)
    assert (second.sinks["per_minute"].records_read, second.sinks["per_minute"].late_rows) == (3, 1)
    assert results(server, names["results"])[1:2] == [(b"Berne", 9, 1, 7.0)]
    assert len(results(server, names["results"])) == 3

    broken, mistyped = sorted(committed(server.bootstrap, names["dead"], 1), key=lambda record: record.value())
    assert (broken.key(), broken.value()) == (b"the key", b"{ broken")
    headers = dict(broken.headers() or [])
    assert headers.pop(dead_letters.ERROR).startswith(b"is not a JSON object with the columns")
    assert headers.pop(dead_letters.EPOCH).isdigit()
    assert headers == {
        "from": b"shop",
        dead_letters.TOPIC: names["orders"].encode(),
        dead_letters.PARTITION: b"0",
        dead_letters.OFFSET: b"3",
        dead_letters.PIPELINE: pipeline.name.encode(),
    }
    assert mistyped.value() == b'{"city": 1, "total": "no number"}'
    assert consumed(server, f"pipeline.{pipeline.name}", names["orders"]) == 8


def consumed(server: Server, group_id: str, topic: str) -> int:
    async def ask() -> int:
        async with OttlaClient(server.bootstrap) as client:
            offsets = (await committed_offsets(client, [group_id]))[group_id]
            assert isinstance(offsets, dict), offsets
            return offsets[TopicPartition(topic, 0)].offset

    return asyncio.run(ask())


STEPS = """
name = "{name}"
[source.orders]
topic = "{orders}"
parse = "json"
schema = "city STRING, total DOUBLE"
[[step]]
name = "checked"
python = "shop_steps:checked"
schema = "city STRING, cents BIGINT"
[sink.out]
topic = "{results}"
key = "city"
"""
CODE = """
import pyarrow as pa
import pyarrow.compute as pc


def checked(batches):
    for batch in batches:
        if pc.any(pc.less(batch["total"], 0)).as_py():
            raise ValueError("an order of less than nothing")
        yield pa.RecordBatch.from_pydict({"city": batch["city"], "cents": pc.multiply(batch["total"], 100)})
"""


def with_code(spark: SparkSession, home: Path) -> None:
    from ottla.pipelines.spark.session import send_code

    (home / "shop_steps.py").write_text(CODE)
    send_code(spark, str(home))


def test_record_that_fails_in_a_function_is_a_dead_letter_alone(
    spark: SparkSession, ottla: OttlaNode, topics: Topics, tmp_path: Path
) -> None:
    """Its batch failed with it; the others of the batch must come through."""
    with_code(spark, tmp_path)
    names = {"orders": topics.create(ottla), "results": topics.create(ottla)}
    dead = topics.create(ottla)
    errors = f'[errors]\ndead_letter = "{dead}"\nmax_rate = 0.5\n'
    pipeline = pipeline_in(tmp_path, STEPS.format(name=topics.name(), **names) + errors)
    bad = b'{"city": "Chur",  "total": -1}'
    produce(ottla, names["orders"], [b'{"city": "Berne", "total": 2}', bad, b'{"city": "Berne", "total": 3}'])
    run_once(spark, tmp_path, pipeline, ottla)
    values = [json.loads(record.value()) for record in committed(ottla.bootstrap, names["results"], 1)]
    assert sorted(value["cents"] for value in values) == [200, 300]
    (letter,) = committed(ottla.bootstrap, dead, 1)
    assert letter.value() == bad  # Byte for byte, blanks and all.
    headers = dict(letter.headers() or [])
    assert headers[dead_letters.ERROR] == b"failed in step checked: ValueError: an order of less than nothing"
    assert headers[dead_letters.OFFSET] == b"1"

    without = pipeline_in(tmp_path / "without", STEPS.format(name=topics.name(), **names))
    with pytest.raises(GaveUp, match="step checked: shop_steps:checked: ValueError: an order of less than nothing"):
        run_once(spark, tmp_path / "without", without, ottla)


def test_too_many_dead_letters_stop_the_pipeline(
    spark: SparkSession, ottla: OttlaNode, topics: Topics, tmp_path: Path
) -> None:
    names = {"orders": topics.create(ottla), "results": topics.create(ottla), "dead": topics.create(ottla)}
    text = ORDERS.format(name=topics.name(), **names).replace("max_rate = 0.5", "max_rate = 0.1")
    produce(ottla, names["orders"], [b"broken"] * 5 + [order("Berne", 1, 2.0)] * 15)
    with pytest.raises(Exception, match=r"5 of 20 records failed, which is more than errors.max_rate = 0.1"):
        run_once(spark, tmp_path, pipeline_in(tmp_path, text), ottla)
    assert len(committed(ottla.bootstrap, names["dead"], 1)) == 5


def test_replay_leaves_the_live_run_alone(
    spark: SparkSession, ottla: OttlaNode, topics: Topics, tmp_path: Path
) -> None:
    """It has ids and a checkpoint of its own, takes what lies between the times, and is written once."""
    names = {"orders": topics.create(ottla), "results": topics.create(ottla), "dead": topics.create(ottla)}
    pipeline = pipeline_in(tmp_path, ORDERS.format(name=topics.name(), **names))
    for time_ms, minute in ((1_000, 1), (2_000, 2), (3_000, 3)):
        produce(ottla, names["orders"], [order("Berne", minute, 1.0)], timestamp=time_ms)
    span = ReplaySpan(2_000, 3_000)

    def replay() -> SinkStatus:
        options = RunOptions(str(tmp_path), ottla.bootstrap)
        run = ReplayRun(spark, pipeline, options, span, span.replay_of(pipeline))
        run.run(lambda _: None)
        return run.status.sinks["per_minute"]

    assert (replay().rows_written, replay().rows_written) == (1, 0)
    assert replay().epochs_skipped > 0
    assert results(ottla, names["results"]) == [(b"Berne", 2, 1, 1.0)]
    assert not (tmp_path / pipeline.checkpoint).exists()


def test_replay_of_too_many_records_that_fail_writes_nothing(
    spark: SparkSession, ottla: OttlaNode, topics: Topics, tmp_path: Path
) -> None:
    """All of it is one epoch: what has been written could not be taken back."""
    names = {"orders": topics.create(ottla), "results": topics.create(ottla), "dead": topics.create(ottla)}
    text = ORDERS.format(name=topics.name(), **names).replace("max_rate = 0.5", "max_rate = 0.1")
    produce(ottla, names["orders"], [b"broken"] * 3, timestamp=1_000)
    produce(ottla, names["orders"], [b"broken"] * 2 + [order("Berne", 1, 2.0)] * 18, timestamp=2_000)
    options, span = RunOptions(str(tmp_path), ottla.bootstrap), ReplaySpan(1_000, 3_000)

    def replay(text: str) -> SinkStatus:
        pipeline = pipeline_in(tmp_path, text)
        run = ReplayRun(spark, pipeline, options, span, span.replay_of(pipeline))
        run.run(lambda _: None)
        return run.status.sinks["per_minute"]

    with pytest.raises(
        TooManyFailures, match=r"5 of 23 records .* nothing is written. One of them is not a JSON object"
    ):
        replay(text)
    assert committed(ottla.bootstrap, names["dead"], 1) == []
    span = ReplaySpan(2_000, 3_000)
    assert (replay(text).rows_written, len(committed(ottla.bootstrap, names["dead"], 1))) == (1, 2)
