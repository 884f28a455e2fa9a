"""The first pipeline that anybody writes, on the newest Spark: from a topic into a topic, by the command line."""

import json
from pathlib import Path

import pytest
from committed_records import committed
from newest_spark import VERSION, NoNewestSpark, newest_spark
from nodes.ottla_node import OttlaNode
from nodes.topics import Topics
from peers.client import Client
from runner_files import Driver, pipeline_in

from ottla.pipelines.run.checkpoint import Checkpoint
from ottla.pipelines.run.requirements import MissingRequirement, require_java

PIPELINE = """
name = "{name}"
[source.orders]
topic = "{orders}"
parse = "json"
[[step]]
sql = \"""
SELECT window(event_time, '1 minute') AS w, city, count(*) AS n, sum(total) AS total FROM orders GROUP BY 1, 2
\"""
watermark = {{ column = "event_time", delay = "2 minutes" }}
[sink.per_minute]
topic = "{results}"
key = "city"
[errors]
dead_letter = "{dead}"
max_rate = 0.01
"""


def test_topic_to_topic(ottla: OttlaNode, topics: Topics, tmp_path: Path) -> None:
    """Columns are inferred; windows come when they are final; a record that is broken is a dead letter."""
    try:
        require_java()
        python = newest_spark()
    except (MissingRequirement, NoNewestSpark) as missing:
        pytest.skip(str(missing))
    names = {"orders": topics.create(ottla), "results": topics.name(), "dead": topics.name()}
    pipeline = pipeline_in(tmp_path, PIPELINE.format(name=topics.name(), **names))
    producer = Client(ottla.bootstrap).producer()
    for city, minute in (("Berne", 1), ("Berne", 1), ("Chur", 2), ("Berne", 9)):
        order = {"city": city, "total": 2.5, "event_time": f"2026-01-01T00:{minute:02d}:10Z"}
        producer.produce(names["orders"], json.dumps(order))
    producer.produce(names["orders"], "{ broken")
    assert producer.flush(30) == 0
    driver = Driver(tmp_path, ottla, program=[str(python), "-m", "ottla.cli"])
    assert driver.wait(300) == 0, driver.log()
    found = [json.loads(record.value() or b"") for record in committed(ottla.bootstrap, names["results"], 1)]
    assert sorted((row["w"]["start"][14:16], row["city"], row["n"], row["total"]) for row in found) == [
        ("01", "Berne", 2, 5.0),
        ("02", "Chur", 1, 2.5),
    ]
    assert [record.value() for record in committed(ottla.bootstrap, names["dead"], 1)] == [b"{ broken"]
    kept = Checkpoint(str(tmp_path / pipeline.checkpoint)).load()
    assert kept is not None
    assert kept.versions["pyspark"] == VERSION
