"""Java's clients and tools, for the tests of what clients see."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes.java_members import SOURCE
from nodes.java_tools import JavaTools, compiled, java_tools


@pytest.fixture(scope="session")
def java_classes(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tests' own Java programs were compiled to."""
    return compiled(kafka_jars, SOURCE, tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="session")
def tools(kafka_jars: Path, java_classes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaTools]:
    """Kafka's tools, and Java's clients as members of groups."""
    with java_tools(kafka_jars, tmp_path_factory.mktemp("tools"), java_classes) as started:
        yield started
