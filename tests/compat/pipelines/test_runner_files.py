"""Sources of files as streams: every format, and two of them joined."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from runner_files import pipeline_in, run_once, write_lines

JOINED = """
name = "paid-orders"
[source.orders]
files = "orders"
parse = "json"
schema = "id BIGINT, city STRING"
[source.payments]
files = "payments"
parse = "json"
schema = "order_id BIGINT, amount BIGINT"
[[step]]
sql = "SELECT orders.id, city, amount FROM orders JOIN payments ON orders.id = payments.order_id"
[sink.out]
parquet = "out"
"""

PARQUET_AND_TEXT = """
name = "both-formats"
[source.rows]
files = "rows"
parse = "parquet"
schema = "id BIGINT, city STRING"
[source.notes]
files = "notes"
parse = "text"
[[step]]
name = "shouted"
sql = "SELECT upper(value) AS note FROM notes"
[sink.rows_out]
input = "rows"
parquet = "rows_out"
[sink.notes_out]
input = "shouted"
parquet = "notes_out"
"""


def rows_in(directory: Path) -> list[tuple[object, ...]]:
    found = [pq.read_table(path) for path in sorted(directory.glob("*.parquet"))]
    return sorted(tuple(row.values()) for table in found for row in table.to_pylist())


def test_streams_are_joined_whichever_side_comes_first(spark: SparkSession, tmp_path: Path) -> None:
    """What has no partner yet waits in the state, over a restart too."""
    pipeline = pipeline_in(tmp_path, JOINED)
    write_lines(tmp_path / "orders" / "1.json", [{"id": 1, "city": "Berne"}, {"id": 2, "city": "Chur"}])
    write_lines(tmp_path / "payments" / "1.json", [{"order_id": 2, "amount": 20}, {"order_id": 3, "amount": 30}])
    run_once(spark, tmp_path, pipeline)
    assert rows_in(tmp_path / "out") == [(2, "Chur", 20)]
    write_lines(tmp_path / "orders" / "2.json", [{"id": 3, "city": "Zug"}])
    write_lines(tmp_path / "payments" / "2.json", [{"order_id": 1, "amount": 10}])
    run_once(spark, tmp_path, pipeline)
    assert rows_in(tmp_path / "out") == [(1, "Berne", 10), (2, "Chur", 20), (3, "Zug", 30)]


def test_parquet_and_text_files(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, PARQUET_AND_TEXT)
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "city": ["Berne", None]}), tmp_path / "rows" / "1.parquet")
    write_lines(tmp_path / "notes" / "1.txt", ["hello", "again"])
    run_once(spark, tmp_path, pipeline)
    assert sorted(rows_in(tmp_path / "rows_out"), key=str) == [(1, "Berne"), (2, None)]
    assert rows_in(tmp_path / "notes_out") == [("AGAIN",), ("HELLO",)]
