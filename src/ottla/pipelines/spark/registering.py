"""Making Ottla's sources known to Spark."""

import tempfile

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

_SET_BY_SPARK = {
    "SPARK_LOCAL_DIRS": tempfile.gettempdir(),
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""What every query of a source sets anew, with what Python takes where they are missing."""


def register(spark: SparkSession, source: type[DataSource]) -> None:
    """Have Spark find a source by its name, from several queries at once.

    All queries of a source share one map of environment variables, which is not made for threads. Each puts some in
    as it begins: where two do so at the same time, the map can lose count of itself, and every job of the driver that
    is sent with it fails from then on. Variables that are there already are only given their values.
    """
    environment = spark.sparkContext.environment
    environment |= _SET_BY_SPARK | environment
    spark.dataSource.register(source)
