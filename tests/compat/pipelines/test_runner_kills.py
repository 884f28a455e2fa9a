"""Drivers killed in the middle of an epoch: what readers find in the end is what was sent, once."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
from committed_records import committed
from nodes.ottla_node import OttlaNode, wait_until
from nodes.topics import Topics
from postgres_server import Postgres
from runner_files import Driver, pipeline_in, write_lines

FILES, ROWS = 6, 50
PIPELINE = """
name = "{name}"
[source.orders]
files = "in"
parse = "json"
schema = "id BIGINT, city STRING"
max_files_per_batch = 1
[[step]]
sql = "SELECT id, upper(city) AS city FROM orders"
[sink.table]
postgres = "{url}"
table = "{table}"
[sink.files]
parquet = "out"
partition_by = "city"
[sink.topic]
topic = "{topic}"
key = "id"
parallelism = 2
"""


def killed_when(home: Path, node: OttlaNode, happens: Callable[[], bool], what: str) -> None:
    driver = Driver(home, node)

    def seen() -> bool:
        assert driver.running, driver.log()
        return happens()

    try:
        wait_until(seen, what, 180)
    finally:
        driver.kill()


def test_killed_drivers_lose_and_double_nothing(
    ottla: OttlaNode, postgres: Postgres, topics: Topics, tmp_path: Path
) -> None:
    """Once while PostgreSQL has an epoch's rows and has not committed them, once while Parquet files are written."""
    table, topic = "killed", topics.create(ottla)
    pipeline_in(tmp_path, PIPELINE.format(name=topics.name(), url=postgres.url, table=table, topic=topic))
    for file in range(FILES):
        rows = [{"id": file * ROWS + row, "city": f"city-{row % 2}"} for row in range(ROWS)]
        write_lines(tmp_path / "in" / f"{file}.json", rows)

    with psycopg.connect(postgres.url, autocommit=True) as watching, psycopg.connect(postgres.url) as holding:
        watching.execute(f"CREATE TABLE {table} (id bigint, city text)")
        holding.execute(f"LOCK TABLE {table} IN SHARE MODE")  # Whoever writes it waits.
        waiting = "SELECT count(*) FROM pg_locks WHERE relation = %s::regclass AND NOT granted"
        killed_when(
            tmp_path,
            ottla,
            lambda: watching.execute(waiting, (table,)).fetchone() == (1,),
            "an epoch waits to be written to PostgreSQL",
        )
        holding.rollback()
        assert watching.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)

    own = tmp_path / "out" / "_ottla"
    done = len(list(own.glob("*/*.json")))
    killed_when(
        tmp_path,
        ottla,
        lambda: (
            len(list(own.glob("*/*.json"))) > done  # It has written an epoch, and is in the next.
            and any(not epoch.with_suffix(".json").exists() for epoch in own.glob("*/*.staged"))
        ),
        "an epoch is being written to Parquet",
    )

    driver = Driver(tmp_path, ottla)
    assert driver.wait() == 0, driver.log()
    once = dict.fromkeys(range(FILES * ROWS), 1)
    with psycopg.connect(postgres.url) as connection:
        assert Counter(row[0] for row in connection.execute(f"SELECT id FROM {table}")) == once
    read = pq.read_table(tmp_path / "out")
    assert Counter(read.column("id").to_pylist()) == once
    assert set(read.column("city").to_pylist()) == {"CITY-0", "CITY-1"}
    assert Counter(json.loads(record.value())["id"] for record in committed(ottla.bootstrap, topic, 1)) == once
