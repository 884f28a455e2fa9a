"""Servers for clients: an Ottla per test process and one Apache Kafka, shared by tests with topics of their own."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from nodes.java_members import SOURCE
from nodes.java_tools import JavaTools, compiled, java_tools
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
def java_classes(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tests' own Java programs were compiled to."""
    return compiled(kafka_jars, SOURCE, tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="session")
def tools(kafka_jars: Path, java_classes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaTools]:
    """Kafka's tools, and Java's clients as members of groups."""
    with java_tools(kafka_jars, tmp_path_factory.mktemp("tools"), java_classes) as started:
        yield started


@pytest.fixture(scope="session")
def numbers() -> Iterator[str]:
    """One of each, in all processes of the test run."""
    process = os.environ.get("PYTEST_XDIST_WORKER", "gw")
    return (f"{process}-{number}" for number in count())


@pytest.fixture
def topics(request: pytest.FixtureRequest, numbers: Iterator[str]) -> Topics:
    return Topics(request.node.name, numbers)
