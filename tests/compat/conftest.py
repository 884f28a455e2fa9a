"""Fixtures of every test that runs beside real peers."""

import os
import signal
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "kafka"))  # The package `peers` serves the other suites too.

from nodes.ottla_node import OttlaNode, running_node
from nodes.shared_kafka import shared_kafka
from nodes.topics import KEEPING, QUICK_GROUPS, Server, Topics
from peers.clusters import CLUSTERS, GIVEN
from peers.jars import fetch_jars, missing_programs

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As where a shell started the tests in the background. What they start has to hear Ctrl-C all the same.
    signal.signal(signal.SIGINT, signal.default_int_handler)

LONGEST = ("test_runner_kills.py", "test_cluster.py", "test_runner_delta.py", "test_examples.py")
"""They come first: at the end of a run nobody waits for one of them alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.peer)
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The directory of Kafka's jars: `java -cp 'DIRECTORY/*'`, or one jar of it by its name."""
    missing = missing_programs()
    if missing:
        pytest.skip(f"{' and '.join(missing)} not found: Apache Kafka cannot run beside the tests")
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


@pytest.fixture(scope="session")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    """An Ottla for each process of the test run, shared by tests with topics of their own, as Kafka is."""
    with running_node(tmp_path_factory.mktemp("ottla"), KEEPING | QUICK_GROUPS) as node:
        yield node


@pytest.fixture(params=["ottla", "kafka"])
def server(request: pytest.FixtureRequest) -> Server:
    """Kafka's behaviour is the specification: what is claimed of Ottla is shown to hold of Kafka."""
    chosen: Server = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture(scope="session", params=CLUSTERS)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster for Ottla's own client. Other tests use it too: topics and groups need names of their
    own."""
    match request.param:
        case "given":
            yield os.environ[GIVEN]
        case "kafka":
            yield request.getfixturevalue("kafka").bootstrap
        case _:
            with running_node(tmp_path_factory.mktemp("ottla"), KEEPING | QUICK_GROUPS) as node:
                yield node.bootstrap


@pytest.fixture(scope="session")
def numbers() -> Iterator[str]:
    """One of each, in all processes of the test run."""
    process = os.environ.get("PYTEST_XDIST_WORKER", "gw")
    return (f"{process}-{number}" for number in count())


@pytest.fixture
def topics(request: pytest.FixtureRequest, numbers: Iterator[str]) -> Topics:
    return Topics(request.node.name, numbers)
