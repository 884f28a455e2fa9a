"""One file, two masters: what a pipeline gives on a Spark cluster is what it gives on this machine."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from committed_records import committed
from killed_orders import KilledOrders
from mishaps import SMALL_BATCHES
from nodes.ottla_node import OttlaNode, running_node
from nodes.topics import KEEPING, Topics
from peers.client import Client
from postgres_server import Postgres
from runner_files import Driver, pipeline_in
from spark_cluster import running_cluster

from ottla.pipelines.run.requirements import MissingRequirement, require_spark

PARTITIONS, ORDERS = 2, 400
PIPELINE = """
name = "cluster"
[source.orders]
topic = "orders"
parse = "json"
schema = "id BIGINT, city STRING, total DOUBLE, event_time TIMESTAMP"
max_records_per_batch = 200
[[step]]
name = "checked"
python = "shop_steps:checked"
schema = "id BIGINT, city STRING, cents BIGINT, event_time TIMESTAMP"
[[step]]
name = "windows"
sql = "SELECT window(event_time, '1 minute') AS w, city, count(*) AS n, sum(cents) AS cents FROM checked GROUP BY 1, 2"
watermark = { column = "event_time", delay = "1 minute" }
[sink.per_minute]
topic = "orders-per-minute"
key = "city"
[sink.all]
parquet = "out"
input = "checked"
[errors]
dead_letter = "orders-dead"
max_rate = 0.5
"""
FEW = ("--conf", "spark.executor.memory=700m", "--conf", "spark.sql.shuffle.partitions=2")
"""An executor takes as much memory as the worker has, and a task for each partition of state takes its time."""
CODE = """
import pyarrow as pa
import pyarrow.compute as pc


def checked(batches):
    for batch in batches:
        if pc.any(pc.less(batch["total"], 0)).as_py():
            raise ValueError("an order of less than nothing")
        yield pa.RecordBatch.from_pydict(
            {
                "id": batch["id"],
                "city": batch["city"],
                "cents": pc.cast(pc.multiply(batch["total"], 100), pa.int64()),
                "event_time": batch["event_time"],
            }
        )
"""


def order(number: int) -> bytes:
    if number % 100 == 50:
        return b"{ broken %d" % number
    total = -1 if number % 100 == 70 else number % 7
    at = f"2026-01-01T00:{number // 10:02d}:{number % 10:02d}Z"
    return json.dumps({"id": number, "city": f"city-{number % 3}", "total": total, "event_time": at}).encode()


@pytest.fixture(autouse=True)
def _spark_on_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        require_spark()
    except MissingRequirement as missing:
        pytest.skip(str(missing))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")


Results = tuple[list[tuple[object, ...]], list[bytes], list[tuple[object, ...]]]


def computed(node: OttlaNode, home: Path, *options: str) -> Results:
    """Windows, dead letters and rows that a run gives on a node of its own."""
    home.mkdir()
    (home / "shop_steps.py").write_text(CODE)
    pipeline_in(home, PIPELINE)
    client = Client(node.bootstrap)
    names = ("orders", "orders-per-minute", "orders-dead")
    client.create_topics({name: {} for name in names}, dict.fromkeys(names, PARTITIONS))
    producer = client.producer()
    for number in range(ORDERS):
        producer.produce("orders", order(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0
    driver = Driver(home, node, *options)
    assert driver.wait() == 0, driver.log()
    windows = [
        (record.key(), *(json.loads(record.value())[name] for name in ("n", "cents")), json.loads(record.value())["w"])
        for record in committed(node.bootstrap, "orders-per-minute", PARTITIONS)
    ]
    dead = sorted(record.value() for record in committed(node.bootstrap, "orders-dead", PARTITIONS))
    rows = pq.read_table(home / "out").to_pylist()
    return sorted(windows, key=str), dead, sorted(tuple(row[name] for name in ("id", "city", "cents")) for row in rows)


def test_same_file_gives_the_same_on_a_cluster(ottla: OttlaNode, tmp_path: Path) -> None:
    windows, dead, rows = here = computed(ottla, tmp_path / "here")
    assert (len(dead), len(rows)) == (8, ORDERS - 8)
    assert len(windows) > ORDERS // 10  # Three cities, ten orders a minute; the last minutes are not final yet.

    with running_node(tmp_path / "node", KEEPING) as other, running_cluster(tmp_path) as cluster:
        assert computed(other, tmp_path / "there", "--master", cluster.url, *FEW) == here
        assert cluster.executors(), "no executor of the worker took part"


def test_killed_worker_loses_and_doubles_nothing(
    ottla: OttlaNode, postgres: Postgres, topics: Topics, tmp_path: Path
) -> None:
    """In the middle of a transaction; what its executor had computed is gone, too. Another worker comes."""
    orders = KilledOrders(tmp_path / "run", ottla, topics, ("topic", "files"), postgres)
    orders.send(200)
    orders.mishaps.at(105, topic="hold")
    with running_cluster(tmp_path) as cluster:
        driver = Driver(orders.home, ottla, "--master", cluster.url, *FEW, *SMALL_BATCHES)
        try:
            driver.wait_until(lambda: orders.mishaps.taken("topic"), "a transaction is open")
            cluster.kill_worker()
            orders.mishaps.end_with_their_processes()
            cluster.start_worker()
            assert driver.wait() == 0, driver.log()
        finally:
            if driver.running:
                driver.kill()
        assert len(cluster.executors()) == 2
    orders.check()
