"""Registers Ottla's data sources with Spark."""

import tempfile

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

_SET_BY_SPARK = {
    "SPARK_LOCAL_DIRS": tempfile.gettempdir(),
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""Environment variables that Spark sets for every query of a source, with the values that Python assumes by default."""


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Register a source so that several queries can start with it at the same time.

    All queries of a source share one map of environment variables, which is not thread-safe. Each query adds variables
    as it starts. Two that do so at the same time can corrupt the map, and then every later job of the driver fails.
    So the variables are added here, once: setting the value of an existing key does not change the map's structure.
    """
    environment = spark.sparkContext.environment
    environment |= _SET_BY_SPARK | environment
    spark.dataSource.register(source)
