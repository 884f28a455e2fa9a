"""Flink's connector for Kafka, its exactly-once sink too: the reference job of the benchmark, killed and gone on."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from committed_records import committed_now
from confluent_kafka import Producer
from nodes.ottla_node import wait_until
from nodes.topics import Server, Topics
from peers.flink import FlinkSql, NoFlink
from peers.jvm import FAST_START

from ottla.client import Client, TopicPartition
from ottla.client.offsets import LATEST, list_offsets

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.flink import SETTINGS, reference_job, sink_table, source_table

PARTITIONS = 2
CITIES = ("Amsterdam", "Berlin", "Cairo")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
PATIENCE_S = 480.0
Event = tuple[str, int, datetime]
Window = tuple[str, str, int, float]


def events(minutes: Iterable[int]) -> list[Event]:
    """Twenty each minute; some are too small to be counted."""
    return [
        (CITIES[number % 3], number % 7 * 5, BEGAN + timedelta(minutes=minute, seconds=3 * number))
        for minute in minutes
        for number in range(20)
    ]


LAST: list[Event] = [("nowhere", 0, BEGAN + timedelta(days=1))] * PARTITIONS
"""Not counted; but nothing older comes after it, in either partition."""


def produce(bootstrap: str, topic: str, made: list[Event]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, (city, total, at) in enumerate(made):
        event = {"id": number, "city": city, "total": total, "event_time": f"{at:%Y-%m-%dT%H:%M:%SZ}", "note": ""}
        producer.produce(topic, json.dumps(event), key=city, partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def counted(made: Iterable[Event]) -> Counter[Window]:
    """What the job comes to; each window once."""
    totals: dict[tuple[str, str], list[int]] = {}
    for city, total, at in made:
        if total >= 10:
            totals.setdefault((city, f"{at:%Y-%m-%d %H:%M}:00"), []).append(total)
    return Counter((city, minute, len(found), float(sum(found))) for (city, minute), found in totals.items())


def results(server: Server, topic: str) -> Counter[Window]:
    """What readers of committed records get."""
    values = [json.loads(message.value() or b"") for message in committed_now(server.bootstrap, topic, PARTITIONS)]
    return Counter((row["city"], row["w_start"], row["n"], row["total"]) for row in values)


def transaction_is_open(server: Server, topic: str) -> bool:
    async def ask() -> bool:
        places = dict.fromkeys((TopicPartition(topic, number) for number in range(PARTITIONS)), LATEST)
        async with Client(server.bootstrap) as client:
            return await list_offsets(client, places) != await list_offsets(client, places, committed=True)

    return asyncio.run(ask())


class Job:
    """The reference job, without an end, on what the last one left."""

    def __init__(self, server: Server, home: Path, source: str, target: str, naming: str) -> None:
        self._server, self._home = server, home
        more = {"sink.transaction-naming-strategy": naming}
        self._tables = [
            source_table("events", server.bootstrap, source),
            sink_table("results", server.bootstrap, target, more),
        ]

    def start(self) -> FlinkSql:
        left = sorted(self._home.glob("checkpoints/*/chk-*/_metadata"), key=lambda path: path.stat().st_mtime_ns)
        again = {"execution.state-recovery.path": left[-1].parent.as_uri()} if left else {}
        try:
            flink = FlinkSql(self._home, SETTINGS | again, [*FAST_START, "-Xmx512m"])
        except NoFlink as missing:
            pytest.skip(str(missing))
        try:
            flink.wait_until_ready(PATIENCE_S)
            for table in self._tables:
                flink.execute(table, PATIENCE_S)
            flink.begin(reference_job("events", "results"))
        except BaseException:
            flink.kill()
            raise
        return flink


@pytest.mark.parametrize("naming", ["incrementing", "pooling"])
def test_a_killed_job_goes_on_from_its_checkpoint_and_each_result_is_there_once(
    ottla: Server, topics: Topics, tmp_path: Path, naming: str
) -> None:
    """Flink commits what the checkpoint has, and aborts what the killed one had open: by asking for its producer ids,
    or, where it keeps to a pool of transactional ids, by listing them.
    """
    source, target = (topics.create(ottla, PARTITIONS) for _ in range(2))
    job = Job(ottla, tmp_path / "flink", source, target, naming)
    made = events(range(5))
    produce(ottla.bootstrap, source, made)
    flink = job.start()
    try:
        wait_until(lambda: len(results(ottla, target)) > 0, "a checkpoint has committed results", PATIENCE_S)
        while True:
            following = events(range(len(made) // 20, len(made) // 20 + 5))
            produce(ottla.bootstrap, source, following)
            made += following
            wait_until(lambda: transaction_is_open(ottla, target), "results are written and not committed", PATIENCE_S)
            flink.kill()
            if transaction_is_open(ottla, target):
                break
            flink = job.start()  # The checkpoint was quicker.
        before = results(ottla, target)
        assert not counted(made) <= before
        produce(ottla.bootstrap, source, LAST)
        flink = job.start()
        wait_until(lambda: len(results(ottla, target)) == len(counted(made)), "every window is there", PATIENCE_S)
    finally:
        flink.kill()
    assert results(ottla, target) == counted(made)
    assert before <= results(ottla, target)
