"""The Spark session that a pipeline runs in.

Rule 1: nothing listens but on the loopback, unless the master is not local: its executors must reach the driver.
Rule 2: the plan of an epoch that is done again is the plan of the first time. So Spark may not merge or split the
        partitions of a shuffle by what it finds in them.
Rule 3: times without a zone are UTC, on every machine.
Rule 4: code beside the pipeline's file is sent to the executors, wherever they run; Ottla itself and packages that the
        code imports must be installed there.
"""

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import SparkSession

from ottla.pipelines.requirements import require_java

LOOPBACK: Final = "127.0.0.1"
LOCAL_MASTER: Final = "local[*]"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_ALWAYS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.speculation": "false",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    # An epoch keeps what changed, and not the whole state each time.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
_QUIET: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %p %c{1}: %m%n
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
# Failures of queries and tasks are told, once, by whoever runs the query.
logger.sql.name = org.apache.spark.sql
logger.sql.level = off
logger.tasks.name = org.apache.spark.scheduler
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.python.name = org.apache.spark.api.python
logger.python.level = off
# Spark takes this one's level for that of the console, and says so if it is another than the root's.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
_LOCAL_SHUFFLE_PARTITIONS_MAX: Final = 8
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_PACKAGES: Final = "spark.jars.packages"
DELTA_PACKAGE: Final = "io.delta:delta-spark_4.1_2.13:4.4.0"
_DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@dataclass(frozen=True)
class SessionOptions:
    name: str
    master: str = LOCAL_MASTER
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark's own, given by the person who runs it; they win over everything here."""
    delta: bool = False
    code: str = ""
    """The directory of the pipeline's code, for processes that Spark starts beside the driver."""


def open_session(options: SessionOptions) -> SparkSession:
    """Raises MissingRequirement where there is no Java."""
    require_java()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if options.code:
        paths = [options.code, os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    settings = session_settings(options)
    if settings.get("spark.driver.bindAddress") == LOOPBACK:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    builder = SparkSession.builder.appName(options.name).master(options.master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def session_settings(options: SessionOptions) -> dict[str, str]:
    settings = dict(_ALWAYS)
    if is_local(options.master):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
        # Each of them is a task in every epoch of a stateful query; two hundred of them, Spark's own choice, take
        # seconds on one machine.
        settings["spark.sql.shuffle.partitions"] = str(min(os.cpu_count() or 1, _LOCAL_SHUFFLE_PARTITIONS_MAX))
    packages = [options.settings.get(_PACKAGES, "")]
    if options.delta:
        settings |= _DELTA
        if is_local(options.master):
            settings["spark.databricks.delta.snapshotPartitions"] = settings["spark.sql.shuffle.partitions"]
        packages.append(DELTA_PACKAGE)
    settings |= options.settings
    java = [f"-Dlog4j2.configurationFile={_log_settings()}", options.settings.get(_JAVA_OPTIONS, "")]
    settings[_JAVA_OPTIONS] = " ".join(filter(None, java))
    if any(packages):
        settings[_PACKAGES] = ",".join(filter(None, packages))
    return settings


def _log_settings() -> str:
    """A file that lets errors through and nothing else, also before there is a session to ask for that."""
    directory = tempfile.mkdtemp(prefix="ottla-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = os.path.join(directory, "log4j2.properties")
    with open(path, "w", encoding="utf-8") as file:
        file.write(_QUIET)
    return path


def is_local(master: str) -> bool:
    return master == "local" or master.startswith(("local[", "local-cluster["))


def send_code(spark: SparkSession, directory: str) -> None:
    """Let the driver and every executor import the modules and packages that lie in `directory`."""
    if directory not in sys.path:
        sys.path.insert(0, directory)
    modules = list(_modules_in(directory))
    if not modules:
        return
    made = tempfile.mkdtemp(prefix="ottla-pipeline-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)  # Until then executors that come later fetch it from here.
    path = os.path.join(made, f"{os.path.basename(made)}.zip")  # Two of one name would be one to Spark.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in modules:
            archive.write(module, os.path.relpath(module, directory))
    spark.sparkContext.addPyFile(path)


def _modules_in(directory: str) -> Iterator[str]:
    """Python files at the top, and all of the packages there, found by their __init__.py."""
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        if entry.is_file() and entry.name.endswith(".py"):
            yield entry.path
        elif entry.is_dir() and os.path.isfile(os.path.join(entry.path, "__init__.py")):
            for parent, _, names in os.walk(entry.path):
                yield from (os.path.join(parent, name) for name in sorted(names) if name.endswith(".py"))
