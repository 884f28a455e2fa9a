"""A Spark for the tests of pipelines; servers and topics come from the directory above."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from postgres_server import NoPostgres, Postgres, running_postgres
from spark_archive import use_spark_archive

from ottla.pipelines.run.requirements import MissingRequirement, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """One for each process of the test run: it takes seconds to start."""
    try:
        require_spark()
    except MissingRequirement as missing:
        pytest.skip(str(missing))
    from ottla.pipelines.spark.session import SessionOptions, open_session

    use_spark_archive()
    session = open_session(
        SessionOptions("tests", "local[2]", {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One for each process of the test run, shared by tests with tables of their own."""
    try:
        with running_postgres() as server:
            yield server
    except NoPostgres as missing:
        pytest.skip(str(missing))
