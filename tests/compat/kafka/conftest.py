"""Fixtures of the tests that run beside Apache Kafka."""

import os
from pathlib import Path

import pytest
from peers.jars import fetch_jars, missing_programs
from peers.written import Written, written_by_kafka


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
def kafka_written(kafka_jars: Path, shared_directory: Path) -> Written:
    """Directories that real Kafka wrote, and what it said is in them. Never write to them: copy."""
    return written_by_kafka(kafka_jars, shared_directory)
