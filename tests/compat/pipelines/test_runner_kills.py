"""Drivers, tasks and brokers that die in the middle of epochs: what readers find in the end is what was sent, once."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import dying_driver
import pytest
from committed_records import marker
from killed_orders import ROWS, STATE, KilledOrders
from mishaps import SMALL_BATCHES
from nodes.ottla_node import OttlaNode, running_node
from nodes.topics import Topics
from postgres_server import Postgres
from runner_files import Driver

from ottla.pipelines.spec.identity import PipelineIdentity

ROOMY = ("--master", "local[6]", *SMALL_BATCHES)
"""Tasks that are held leave room for the others."""
PATIENT = ("--master", "local[12,4]", *SMALL_BATCHES)
"""Spark itself tries a task again, as it does on clusters."""


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    """Whatever is left of them at the end of a test."""
    started: list[Driver] = []
    yield started
    for driver in started:
        if driver.running:
            driver.kill()


def test_killed_drivers_lose_and_double_nothing(
    ottla: OttlaNode, postgres: Postgres, topics: Topics, tmp_path: Path, drivers: list[Driver]
) -> None:
    """First in the middle of an epoch, then when every sink has written one that Spark knows nothing of.

    The first kill hits a topic with one task's transaction committed and the other's open, and tasks that write to the
    table and to files. After the second each sink must find its epoch, and leave it; windows and sums are right.
    """
    sinks = (*ROWS, *STATE)
    orders = KilledOrders(tmp_path, ottla, topics, sinks, postgres)
    orders.send(200)
    orders.mishaps.at(105, **dict.fromkeys(ROWS, "hold"))
    drivers.append(driver := Driver(tmp_path, ottla, *ROOMY, once=False))
    driver.wait_until(lambda: orders.mishaps.taken(*ROWS), "sinks are in the middle of an epoch")
    groups = [PipelineIdentity(orders.name).marker_group_id("topic", task) for task in range(2)]

    def epochs_of_tasks() -> set[int]:
        found = (marker(ottla.bootstrap, group, orders.topics["results"], stable=False) for group in groups)
        return {one.offset for one in found if one is not None}

    driver.wait_until(lambda: len(epochs_of_tasks()) == 2, "one task has committed, the other has not")
    begun = max(epochs_of_tasks()) - 1
    orders.send(200)
    driver.kill()
    orders.mishaps.end_with_their_processes()

    outcomes = tmp_path / "outcomes"
    dying = (sys.executable, dying_driver.__file__, str(len(sinks)), str(begun + 1), str(outcomes))
    drivers.append(driver := Driver(tmp_path, ottla, *ROOMY, once=False, program=dying))
    driver.wait()
    written = [json.loads(line) for line in outcomes.read_text().splitlines()]
    assert [one["skipped"] for one in written if (one["sink"], one["epoch"]) == ("topic", begun)] == [1], written
    assert all(orders.checkpoint.unfinished(sink) is not None for sink in sinks), driver.log()

    orders.send(200)
    orders.close_windows()
    drivers.append(driver := Driver(tmp_path, ottla, *ROOMY))
    assert driver.wait() == 0, driver.log()
    status = orders.status()
    assert status is not None
    skipped = {name: sink.epochs_skipped for name, sink in status.sinks.items()}
    assert skipped == dict.fromkeys(sinks, 1) | {"topic": 2}  # Of both its tasks.
    orders.check()


def test_failing_tasks_and_a_killed_broker_lose_and_double_nothing(
    postgres: Postgres, topics: Topics, tmp_path: Path, drivers: list[Driver]
) -> None:
    """One run lives through all of it: processes of tasks killed, an error, and the broker killed, twice."""
    with running_node(tmp_path / "node") as node:
        orders = KilledOrders(tmp_path / "run", node, topics, ROWS, postgres)
        drivers.append(driver := Driver(orders.home, node, *PATIENT, once=False))

        def written(count: int, **mishaps: str) -> None:
            orders.mishaps.end()
            orders.mishaps.at(orders.sent + count // 3, **mishaps)
            orders.send(count)
            driver.wait_until(orders.all_done, f"{orders.sent} orders are done")
            assert orders.mishaps.taken(*mishaps)

        written(60)
        restarts = orders.restarts()
        written(60, **dict.fromkeys(ROWS, "kill"))
        written(60, topic="raise")
        assert orders.restarts() == restarts  # Spark tried the tasks again, and that was all.

        orders.mishaps.end()
        orders.mishaps.at(orders.sent + 20, topic="hold")
        orders.send(60)
        driver.wait_until(lambda: orders.mishaps.taken("topic"), "a transaction is open")
        node.kill()
        orders.mishaps.end()  # The task finds nobody for a while.
        node.start()
        driver.wait_until(orders.all_done, f"{orders.sent} orders are done")

        node.kill()
        node.start()
        written(60)
        driver.stop()
        assert driver.wait() == 0, driver.log()
        orders.check()
