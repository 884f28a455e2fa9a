"""Fixtures of the tests about the files of Apache Kafka, and of those of Ottla's client against a cluster."""

from pathlib import Path

import pytest
from peers.commands import Ottla
from peers.written import Written, written_by_kafka


@pytest.fixture(scope="session")
def kafka_written(kafka_jars: Path, shared_directory: Path) -> Written:
    """Directories that real Kafka wrote, and what it said is in them. Never write to them: copy."""
    return written_by_kafka(kafka_jars, shared_directory)


@pytest.fixture
def ottla(bootstrap: str, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Ottla:
    return Ottla(bootstrap, capfdbinary, tmp_path)
