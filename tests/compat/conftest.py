"""Fixtures of every test that runs beside real peers."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "kafka"))  # The package `peers` serves the other suites too.

from nodes.shared_kafka import shared_kafka
from nodes.topics import Server
from peers.jars import fetch_jars, missing_programs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.peer)


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The directory of Kafka's jars: `java -cp 'DIRECTORY/*'`, or one jar of it by its name."""
    missing = missing_programs()
    if missing:
        reason = f"{' and '.join(missing)} not found: Apache Kafka cannot run beside the tests"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return fetch_jars()


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One directory for all the processes of a test run."""
    own = tmp_path_factory.getbasetemp()
    return own if "PYTEST_XDIST_WORKER" not in os.environ else own.parent


@pytest.fixture(scope="session")
def kafka(kafka_jars: Path, shared_directory: Path) -> Iterator[Server]:
    """The one Apache Kafka of the test run."""
    with shared_kafka(kafka_jars, shared_directory / "shared-kafka") as broker:
        yield broker
