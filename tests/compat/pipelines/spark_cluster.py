"""A standalone Spark on the loopback: a master and a worker, from the pip package alone."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from nodes.ottla_node import wait_until
from peers.broker import free_ports

SPARK_HOME = Path(pyspark.__file__).parent
_HOST = "127.0.0.1"
_PATIENCE_S = 120.0


class SparkCluster:
    def __init__(self, url: str, work: Path) -> None:
        self.url = url
        """What `--master` takes."""
        self._work = work

    def executors(self) -> list[str]:
        """What was said by each executor that the worker has run so far."""
        return [path.read_text() for path in self._work.glob("app-*/*/stderr")]


@contextmanager
def running_cluster(home: Path) -> Iterator[SparkCluster]:
    """With one worker of two cores. Applications must set SPARK_LOCAL_IP, too: executors ask where the driver is."""
    port, worker_port = free_ports(2)
    url = f"spark://{_HOST}:{port}"
    work = home / "work"
    here = ("--host", _HOST, "--webui-port", "0")
    with ExitStack() as running:
        master_log = home / "master.log"
        _run(running, master_log, "master.Master", *here, "--port", str(port))
        _wait_for(master_log, "New state: ALIVE")
        size = ("--cores", "2", "--memory", "1g")
        _run(running, home / "worker.log", "worker.Worker", *here, *size, "-p", str(worker_port), "-d", str(work), url)
        _wait_for(home / "worker.log", "Successfully registered with master")
        yield SparkCluster(url, work)


def _run(running: ExitStack, log_path: Path, name: str, *arguments: str) -> None:
    """By the package's own script, which sets what executors need and becomes the JVM at its end."""
    here = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": _HOST}
    small = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1"}
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=os.environ | here | small,
            cwd=log_path.parent,
        )
    running.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(log_path: Path, words: str) -> None:
    wait_until(lambda: words in log_path.read_text(), f"{log_path.name} says {words!r}", _PATIENCE_S)
