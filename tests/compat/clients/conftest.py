"""Servers for clients: an Ottla per test process and one Apache Kafka, shared by tests with topics of their own."""

import os
from collections.abc import Iterator
from itertools import count

import pytest
from nodes.ottla_node import OttlaNode, running_node
from nodes.topics import KEEPING, QUICK_GROUPS, Server, Topics


@pytest.fixture(scope="session")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    with running_node(tmp_path_factory.mktemp("ottla"), KEEPING | QUICK_GROUPS) as node:
        yield node


@pytest.fixture(params=["ottla", "kafka"])
def server(request: pytest.FixtureRequest) -> Server:
    """Kafka's behaviour is the specification: what is claimed of Ottla is shown to hold of Kafka."""
    chosen: Server = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture(scope="session")
def numbers() -> Iterator[str]:
    """One of each, in all processes of the test run."""
    process = os.environ.get("PYTEST_XDIST_WORKER", "gw")
    return (f"{process}-{number}" for number in count())


@pytest.fixture
def topics(request: pytest.FixtureRequest, numbers: Iterator[str]) -> Topics:
    return Topics(request.node.name, numbers)
