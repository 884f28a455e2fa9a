"""Servers for clients: one Ottla and one Apache Kafka per test process, shared by tests with topics of their own."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from nodes.ottla_node import OttlaNode, running_node
from nodes.topics import Server, Topics
from peers.broker import KafkaBroker, running_broker


@pytest.fixture(scope="session")
def ottla(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    with running_node(tmp_path_factory.mktemp("ottla")) as node:
        yield node


@pytest.fixture(scope="session")
def kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    settings = {"auto.create.topics.enable": "true"}
    with running_broker(kafka_jars, tmp_path_factory.mktemp("kafka"), settings) as broker:
        yield broker


@pytest.fixture(params=["ottla", "kafka"])
def server(request: pytest.FixtureRequest) -> Server:
    """Kafka's behaviour is the specification: what is claimed of Ottla is shown to hold of Kafka."""
    chosen: Server = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    return count()


@pytest.fixture
def topics(request: pytest.FixtureRequest, numbers: Iterator[int]) -> Topics:
    return Topics(request.node.name, numbers)
