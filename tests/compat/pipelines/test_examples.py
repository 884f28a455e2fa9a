"""The ready-made pipelines, on data that is made up the same each time: what comes out is known to the last record."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from committed_records import committed
from nodes.ottla_node import OttlaNode
from peers.client import Client
from postgres_server import NoPostgres, running_postgres
from pyspark.sql import SparkSession
from runner_files import run_once
from spark_archive import use_spark_archive

from ottla.pipelines import Pipeline, load_toml
from ottla.pipelines.spec.model import TopicSink

sys.path.append(str(Path(__file__).parents[3]))

from examples.recommendations import views
from examples.shop import events
from examples.shop.accounts import Accounts, Sink, Windows

ROOT = Path(__file__).parents[3]
SHOP, RECOMMENDATIONS = ROOT / "examples" / "shop", ROOT / "examples" / "recommendations"


def into_topics_alone(example: Path, checkpoint: Path) -> Pipeline:
    pipeline = load_toml(str(example / "pipeline.toml"))
    topics = tuple(sink for sink in pipeline.sinks if isinstance(sink, TopicSink))
    return replace(pipeline, sinks=topics, checkpoint=str(checkpoint))


def produce(node: OttlaNode, records: Iterable[tuple[str, bytes]]) -> None:
    producer = Client(node.bootstrap).producer()
    for topic, value in records:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def values(node: OttlaNode, topic: str) -> list[dict[str, Any]]:
    return [json.loads(record.value()) for record in committed(node.bootstrap, topic, 1)]


def test_shop_counts_every_event_in_its_city_and_minute(spark: SparkSession, ottla: OttlaNode, tmp_path: Path) -> None:
    """Counts, sums and couriers of each window are those of its events; broken ones are dead letters as they were."""
    topics = (events.ORDERS, events.COURIERS, "shop.windows", "shop.dead-letters")
    Client(ottla.bootstrap).create_topics({topic: {} for topic in topics}, dict.fromkeys(topics, 1))
    day = list(events.day(1_000))
    produce(ottla, [(event.topic, event.value) for event in (*day, *events.off_duty())])
    status = run_once(spark, SHOP, into_topics_alone(SHOP, tmp_path / "checkpoint"), ottla)
    assert status.sinks["windows"].records_read == len(day) + len(events.CITIES)

    expected: dict[tuple[str, int], Counter[str]] = {}
    couriers: dict[tuple[str, int], set[str]] = {}
    for event in day:
        if event.broken:
            continue
        window = event.city, (event.time_ms - events.OPENS_MS) // events.MINUTE_MS
        ordered = event.topic == events.ORDERS
        counts = expected.setdefault(window, Counter())
        counts.update(orders=int(ordered), positions=int(not ordered), cents=event.cents)
        if not ordered:
            couriers.setdefault(window, set()).add(json.loads(event.value)["courier"])
    found = values(ottla, "shop.windows")
    assert len(found) == len(expected) == len(events.CITIES) * events.MINUTES
    for row in found:
        window = row["city"], int(row["minute"][14:16])
        assert {name: row[name] for name in ("orders", "positions", "cents")} == dict(expected[window])
        assert row["couriers"] == len(couriers.get(window, ()))
    dead = [record.value() for record in committed(ottla.bootstrap, "shop.dead-letters", 1)]
    assert sorted(dead) == sorted(event.value for event in day if event.broken)


def test_recommendations_are_made_anew_as_views_come(spark: SparkSession, ottla: OttlaNode, tmp_path: Path) -> None:
    """Ten products that the customer has not looked at, of his taste; the second run knows the views of both."""
    from ottla.pipelines.spark.session import send_code

    settings: dict[str, dict[str, str]] = {
        "shop.views": {},
        "shop.views-dead-letters": {},
        "shop.recommendations": {"cleanup.policy": "compact"},
    }
    Client(ottla.bootstrap).create_topics(settings, dict.fromkeys(settings, 1))
    send_code(spark, str(RECOMMENDATIONS))
    pipeline = into_topics_alone(RECOMMENDATIONS, tmp_path / "checkpoint")
    first, later = list(views.views(900, customers=30)), list(views.views(100, customers=40, seed=8))

    produce(ottla, [("shop.views", view) for view in first])
    run_once(spark, RECOMMENDATIONS, pipeline, ottla)
    check_recommendations(values(ottla, "shop.recommendations"), first)

    produce(ottla, [("shop.views", view) for view in later])
    run_once(spark, RECOMMENDATIONS, pipeline, ottla)
    latest = {row["customer"]: row for row in values(ottla, "shop.recommendations")}  # As compaction leaves them.
    check_recommendations(list(latest.values()), first + later)
    assert len(committed(ottla.bootstrap, "shop.views-dead-letters", 1)) == 2


def check_recommendations(rows: list[dict[str, Any]], of: list[bytes]) -> None:
    seen: dict[int, list[int]] = {}
    for view in of:
        if view.endswith(b"}"):
            told = json.loads(view)
            seen.setdefault(told["customer"], []).append(told["product"])
    assert {row["customer"]: row["views"] for row in rows} == {customer: len(all_) for customer, all_ in seen.items()}
    fitting = 0
    for row in rows:
        offered = [one["product"] for one in row["products"]]
        assert len(set(offered)) == 10
        assert not set(offered) & set(seen[row["customer"]])
        fitting += sum(views.taste_of_product(one) == views.taste_of_customer(row["customer"]) for one in offered)
    assert fitting / (10 * len(rows)) > 0.6  # By chance it would be a quarter.


def demo(*options: str) -> "subprocess.Popen[str]":
    use_spark_archive()
    command = [sys.executable, "-m", "examples.shop", *options]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def has_postgres() -> bool:
    try:
        with running_postgres():
            return True
    except NoPostgres:
        return False


def test_demo_accounts_for_every_event() -> None:
    process = demo("--events", "1500", "--seconds", "1")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    lines = said.splitlines()
    sinks = ["windows", "windows_table"] if has_postgres() else ["windows"]
    sums = "1,508 = 1,496 counted + 8 late + 4 dead letters"
    assert [line.split(maxsplit=1) for line in lines[-1 - len(sinks) : -1]] == [[sink, sums] for sink in sinks], said
    assert lines[-1] == "Every event is accounted for, once."
    assert ("results go to topics alone" in said) == (len(sinks) == 1)


def test_demo_that_is_interrupted_says_so() -> None:
    process = demo("--no-postgres")
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith("the first customers"):
            os.killpg(process.pid, signal.SIGINT)  # To all of them, as a terminal does.
            break
    said += process.stdout.readlines()
    assert process.wait(60) == 130, "".join(said)
    assert said[-1] == "Stopped before the end: there is nothing to sum up.\n", "".join(said)
    assert "Traceback" not in "".join(said)


def windows(*rows: tuple[str, int]) -> Windows:
    made = Windows()
    for minute, orders in rows:
        made.add({"city": "Berne", "minute": minute, "orders": orders, "positions": 0, "cents": 0, "couriers": 0})
    return made


@pytest.mark.parametrize(
    ("found", "late", "told"),
    [
        (windows(("11:00", 5), ("11:01", 2)), 2, []),
        (
            windows(("11:00", 5)),
            2,
            ["topic: 10 events came in, but 5 counted, 2 late and 1 dead letters are 8: 2 missing"],
        ),
        (
            windows(("11:00", 5), ("11:01", 2), ("11:01", 2)),
            2,
            [
                "topic: 10 events came in, but 9 counted, 2 late and 1 dead letters are 12: 2 too many",
                "topic: written twice: Berne 11:01",
            ],
        ),
    ],
)
def test_accounts_that_do_not_add_up_are_told(found: Windows, late: int, told: list[str]) -> None:
    """A demo that cannot fail shows nothing."""
    accounts = Accounts(records=14, off_duty=4, dead_letters=1, sinks={"topic": Sink(found, late)})
    assert list(accounts.faults()) == told
