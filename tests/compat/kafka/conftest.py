"""Fixtures of the tests about the files of Apache Kafka."""

from pathlib import Path

import pytest
from peers.written import Written, written_by_kafka


@pytest.fixture(scope="session")
def kafka_written(kafka_jars: Path, shared_directory: Path) -> Written:
    """Directories that real Kafka wrote, and what it said is in them. Never write to them: copy."""
    return written_by_kafka(kafka_jars, shared_directory)
