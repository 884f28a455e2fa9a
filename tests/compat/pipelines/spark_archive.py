"""The archive of Spark's classes (`peers/class_archive`), for every Spark that a test starts on this machine."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from peers.class_archive import made_once, using
from peers.jars import CACHE

OPTIONS = "SPARK_SUBMIT_OPTS"
"""The environment variable with flags for the JVM of a driver."""
RUN = """
import sys
from pyspark import SparkContext
from ottla.pipelines.spark.session import SessionOptions, open_session

spark = open_session(SessionOptions("classes", "local[2]"))
counts = spark.readStream.format("rate").load().groupBy("value").count()
query = counts.writeStream.format("memory").queryName("counts").outputMode("complete").start()
query.processAllAvailable()
query.stop()
spark.stop()
jvm = SparkContext._gateway.proc
SparkContext._gateway.shutdown()
jvm.stdin.close()
jvm.wait()  # It writes the archive at its end.
"""


def use_spark_archive() -> None:
    """Drivers that this process and its children start from now on use the archive, which is made if it is missing."""
    os.environ[OPTIONS] = " ".join(using(made_once(_archive(), _run)))


def _archive() -> Path:
    return CACHE / f"spark-{version('pyspark')}.jsa"


def _run(flags: Sequence[str]) -> None:
    environment = os.environ | {OPTIONS: " ".join(flags)}
    subprocess.run([sys.executable, "-c", RUN], env=environment, check=True, stdout=subprocess.DEVNULL)
