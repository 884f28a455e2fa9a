"""Streams joined with a compacted topic as a table, over epochs and over failures."""

import json
from pathlib import Path

import pytest
from committed_records import committed
from nodes.topics import Server, Topics
from peers.client import Client
from pyspark.sql import SparkSession
from runner_files import pipeline_in, run_once

from ottla.pipelines.spark.queries import GaveUp

JOIN = """
name = "{name}"
[source.orders]
topic = "{orders}"
parse = "json"
schema = "city STRING, note STRING"
max_records_per_batch = 1
[source.cities]
topic = "{cities}"
parse = "json"
schema = "name STRING"
table = true
[[step]]
sql = "SELECT orders.city, cities.name, note FROM orders JOIN cities ON orders.city = string(cities._key)"
[sink.out]
topic = "{results}"
key = "city"
parallelism = 1
"""


def produce(server: Server, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
    producer = Client(server.bootstrap).producer()
    for key, value in records:
        producer.produce(topic, value, key=key)
    assert producer.flush(30) == 0


def test_epoch_that_is_done_again_sees_the_table_it_saw(
    spark: SparkSession, server: Server, topics: Topics, tmp_path: Path
) -> None:
    """The table has changed since the sink refused the epoch; only the epochs after it see that."""
    cities = topics.create(server, partitions=2, cleanup_policy="compact")
    names = {
        "orders": topics.create(server),
        "cities": cities,
        "results": topics.create(server, max_message_bytes="300"),
    }
    pipeline = pipeline_in(tmp_path, JOIN.format(name=topics.name(), **names))
    long = "x" * 300
    produce(
        server, cities, (b"be", b'{"name": "Bern"}'), (b"ch", b'{"name": "Chur"}'), (b"gone", b'{"name": "Nowhere"}')
    )
    produce(server, cities, (b"gone", None))
    produce(
        server,
        names["orders"],
        (None, b'{"city": "ch"}'),
        (None, b'{"city": "gone"}'),
        (None, json.dumps({"city": "be", "note": long}).encode()),
        (None, b'{"city": "be"}'),
    )
    with pytest.raises(GaveUp, match="MESSAGE_TOO_LARGE"):
        run_once(spark, tmp_path, pipeline, server)
    produce(server, cities, (b"be", b'{"name": "Berne"}'), (b"ch", None))
    Client(server.bootstrap).alter_topic(names["results"], {"max.message.bytes": "1000000"})
    produce(server, names["orders"], (None, b'{"city": "ch", "note": "too late"}'))
    run_once(spark, tmp_path, pipeline, server)
    written = [json.loads(record.value() or b"") for record in committed(server.bootstrap, names["results"], 1)]
    assert [(row["city"], row["name"], row["note"]) for row in written] == [
        ("ch", "Chur", None),
        ("be", "Bern", long),
        ("be", "Berne", None),
    ]
