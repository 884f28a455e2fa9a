"""Orders into every kind of sink, by a pipeline that is to be killed; and whether each order is there once."""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
from committed_records import committed
from delta_tables import rows_in
from mishaps import Mishaps
from nodes.topics import Server, Topics
from peers.client import Client
from postgres_server import Postgres
from runner_files import pipeline_in

from ottla.pipelines.run.checkpoint import Checkpoint, RunStatus

PARTITIONS = 2
ROWS = ("topic", "table", "files", "delta")
"""Sinks that have a row for each order."""
STATE = ("windows", "totals")
"""Sinks of what is computed with state: windows that a watermark closes, and sums of transformWithState."""
START = datetime(2026, 1, 1, tzinfo=UTC)

SOURCE = """
name = "{name}"
[source.orders]
topic = "{orders}"
parse = "json"
schema = "id BIGINT, city STRING, cents BIGINT, event_time TIMESTAMP"
max_records_per_batch = 100
"""
ROW_STEP = """
[[step]]
name = "for_{sink}"
input = "orders"
python = "steps:for_{sink}"
schema = "id BIGINT, city STRING, cents BIGINT"
"""
PARTS = {
    "topic": """
[sink.topic]
topic = "{results}"
input = "orders"
key = "id"
parallelism = 2
partitioner = "steps:partition"
""",
    "table": ROW_STEP.replace("{sink}", "table")
    + """
[sink.table]
postgres = "{url}"
table = "{table}"
input = "for_table"
""",
    "files": ROW_STEP.replace("{sink}", "files")
    + """
[sink.files]
parquet = "files"
input = "for_files"
partition_by = "city"
""",
    "delta": ROW_STEP.replace("{sink}", "delta")
    + """
[sink.delta]
delta = "delta"
input = "for_delta"
""",
    "windows": """
[[step]]
name = "windows"
sql = "SELECT window(event_time, '1 minute') AS w, city, count(*) AS n, sum(cents) AS cents FROM orders GROUP BY 1, 2"
watermark = {{ column = "event_time", delay = "5 minutes" }}
[sink.windows]
topic = "{windows}"
input = "windows"
key = "city"
parallelism = 1
""",
    "totals": """
[[step]]
name = "totals"
input = "orders"
stateful = "steps:Total"
keys = ["city"]
schema = "city STRING, n BIGINT, cents BIGINT"
[sink.totals]
postgres = "{url}"
table = "{table}_totals"
input = "totals"
upsert = "city"
""",
}
"""What each sink needs of the file."""


def order(number: int) -> dict[str, Any]:
    at = START + timedelta(seconds=number)
    return {"id": number, "city": f"city-{number % 3}", "cents": number % 7 * 100, "event_time": at.isoformat()}


class KilledOrders:
    """A pipeline in a directory of its own, what was sent to it, and what came of that."""

    def __init__(self, home: Path, server: Server, topics: Topics, sinks: Iterable[str], postgres: Postgres) -> None:
        self.home, self._server, self._sinks, self._postgres = home, server, tuple(sinks), postgres
        self.topics = {name: topics.create(server, PARTITIONS) for name in ("orders", "results", "windows")}
        self.name = topics.name()
        self._table = self.name.replace("-", "_")[-50:].lower()
        names = self.topics | {"name": self.name, "url": postgres.url, "table": self._table}
        text = SOURCE + "".join(PARTS[sink] for sink in self._sinks)
        home.mkdir(exist_ok=True)
        self.mishaps = Mishaps(home)
        pipeline_in(home, text.format(**names))
        self.checkpoint = Checkpoint(str(home / "checkpoints" / self.name))
        self.sent = 0
        self._last = 0

    def send(self, count: int, *, later_s: int = 0) -> None:
        """So many orders more, one a second, the first `later_s` after the one before it."""
        producer = Client(self._server.bootstrap).producer()
        for number in range(self.sent, self.sent + count):
            event = order(number)
            event["event_time"] = (START + timedelta(seconds=number + later_s)).isoformat()
            producer.produce(self.topics["orders"], json.dumps(event).encode(), partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        self.sent += count

    def close_windows(self) -> None:
        """By an order in each partition that comes an hour later than all before."""
        self._last = self.sent
        self.send(PARTITIONS, later_s=3_600)

    def status(self) -> RunStatus | None:
        return self.checkpoint.status()

    def restarts(self) -> Counter[str]:
        """How often each sink's query has restarted."""
        status = self.status()
        assert status is not None
        return Counter({name: sink.restarts for name, sink in status.sinks.items()})

    def all_done(self) -> bool:
        """Whether the run, the first there was, says that every sink has finished the epochs of all that was sent.

        Rows say less: those of a commit whose answer was lost are found to be there, and nobody wrote them.
        """
        status = self.status()
        return status is not None and [sink.records_read for sink in status.sinks.values()] == [self.sent] * len(
            self._sinks
        )

    def check(self) -> None:
        """Every order is there once, and what was computed from them is right. When nothing runs any more."""
        once = dict.fromkeys(range(self.sent), 1)
        for sink in self._sinks:
            if sink in ROWS:
                found = Counter(self._ids(sink))
                assert (once.keys() - found.keys(), found - Counter(once)) == (set(), Counter()), (
                    f"{sink}: lost, doubled"
                )
        if "windows" in self._sinks:
            assert self._windows() == expected_windows(self._last)
        if "totals" in self._sinks:
            assert self._totals() == expected_totals(self.sent)

    def _ids(self, sink: str) -> list[int]:
        match sink:
            case "topic":
                return [record["id"] for record in self._records("results")]
            case "table":
                return [row[0] for row in self._query(f"SELECT id FROM {self._table}")]
            case "files":
                ids: list[int] = pq.read_table(self.home / "files").column("id").to_pylist()
                return ids
            case _:
                return [row["id"] for row in rows_in(self.home / "delta")]

    def _windows(self) -> Counter[tuple[datetime, str, int, int]]:
        return Counter(
            (datetime.fromisoformat(row["w"]["start"]), row["city"], row["n"], row["cents"])
            for row in self._records("windows")
        )

    def _totals(self) -> Counter[tuple[Any, ...]]:
        return Counter(self._query(f"SELECT city, n, cents FROM {self._table}_totals"))

    def _records(self, topic: str) -> list[Any]:
        return [
            json.loads(record.value() or b"")
            for record in committed(self._server.bootstrap, self.topics[topic], PARTITIONS)
        ]

    def _query(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._postgres.url) as connection:
            return connection.execute(text).fetchall()


def expected_windows(orders: int) -> Counter[tuple[datetime, str, int, int]]:
    counts: Counter[tuple[datetime, str]] = Counter()
    sums: Counter[tuple[datetime, str]] = Counter()
    for event in map(order, range(orders)):
        at = datetime.fromisoformat(event["event_time"]).replace(second=0), event["city"]
        counts[at] += 1
        sums[at] += event["cents"]
    return Counter((*at, count, sums[at]) for at, count in counts.items())


def expected_totals(orders: int) -> Counter[tuple[str, int, int]]:
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for event in map(order, range(orders)):
        counts[event["city"]] += 1
        sums[event["city"]] += event["cents"]
    return Counter((city, count, sums[city]) for city, count in counts.items())
