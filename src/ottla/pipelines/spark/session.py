"""Opens the Spark session that a pipeline runs in.

Rule 1: with a local master Spark listens on the loopback only. Otherwise executors must reach the driver.
Rule 2: a repeated epoch has the same plan as the first time. So adaptive execution, which merges and splits shuffle
        partitions by their content, is off.
Rule 3: times without a zone are UTC.
Rule 4: code beside the pipeline's file is sent to the executors. Ottla and the packages that the code imports must be
        installed there.
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

from ottla.pipelines.run.requirements import require_java
from ottla.pipelines.spec.sinks import SparkNeeds

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
    # An epoch writes only the changes of the state.
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
# Ottla reports failures of queries and tasks itself.
logger.sql.name = org.apache.spark.sql
logger.sql.level = off
logger.tasks.name = org.apache.spark.scheduler
logger.tasks.level = off
logger.executor.name = org.apache.spark.executor
logger.executor.level = off
logger.python.name = org.apache.spark.api.python
logger.python.level = off
# Spark prints a message if the level of this logger differs from the root's.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
_LOCAL_SHUFFLE_PARTITIONS_MAX: Final = 8
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_PACKAGES: Final = "spark.jars.packages"
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"


@dataclass(frozen=True)
class SessionOptions:
    name: str
    master: str = LOCAL_MASTER
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the user (`--conf`), which override everything here."""
    needs: tuple[SparkNeeds, ...] = ()
    """What the pipeline's sinks need."""
    code: str = ""
    """The directory of the pipeline's code, for the Python processes that Spark starts on the driver's machine."""


def open_session(options: SessionOptions) -> SparkSession:
    """Start a Spark session. Raises MissingRequirement if Java is missing."""
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
        # Each partition is a task in every epoch of a stateful query. Spark's default of 200 takes seconds here.
        settings[_SHUFFLE_PARTITIONS] = str(min(os.cpu_count() or 1, _LOCAL_SHUFFLE_PARTITIONS_MAX))
    packages = [options.settings.get(_PACKAGES, "")]
    for needs in options.needs:
        settings |= needs.settings
        if is_local(options.master):
            settings |= dict.fromkeys(needs.partition_settings, settings[_SHUFFLE_PARTITIONS])
        packages += (package for package in needs.packages if package not in packages)
    settings |= options.settings
    java = [f"-Dlog4j2.configurationFile={_log_settings()}", options.settings.get(_JAVA_OPTIONS, "")]
    settings[_JAVA_OPTIONS] = " ".join(filter(None, java))
    if any(packages):
        settings[_PACKAGES] = ",".join(filter(None, packages))
    return settings


def _log_settings() -> str:
    """A log4j file that shows only errors, also while the session starts."""
    directory = tempfile.mkdtemp(prefix="ottla-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = os.path.join(directory, "log4j2.properties")
    with open(path, "w", encoding="utf-8") as file:
        file.write(_QUIET)
    return path


def is_local(master: str) -> bool:
    return master == "local" or master.startswith(("local[", "local-cluster["))


def send_code(spark: SparkSession, directory: str) -> None:
    """Make the modules and packages in `directory` importable on the driver and on every executor."""
    if directory not in sys.path:
        sys.path.insert(0, directory)
    modules = list(_modules_in(directory))
    if not modules:
        return
    made = tempfile.mkdtemp(prefix="ottla-pipeline-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)  # Executors that start later fetch the file from here.
    path = os.path.join(made, f"{os.path.basename(made)}.zip")  # Spark takes files of the same name for one.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in modules:
            archive.write(module, os.path.relpath(module, directory))
    spark.sparkContext.addPyFile(path)


def _modules_in(directory: str) -> Iterator[str]:
    """The Python files in a directory, and all Python files of the packages in it."""
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        if entry.is_file() and entry.name.endswith(".py"):
            yield entry.path
        elif entry.is_dir() and os.path.isfile(os.path.join(entry.path, "__init__.py")):
            for parent, _, names in os.walk(entry.path):
                yield from (os.path.join(parent, name) for name in sorted(names) if name.endswith(".py"))
