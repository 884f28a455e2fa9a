"""A standalone Spark on the loopback: a master and workers, from the pip package alone."""

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
_PATIENCE_S = 480.0


class SparkCluster:
    def __init__(self, home: Path, running: ExitStack) -> None:
        self._home, self._running = home, running
        (port,) = free_ports(1)
        self.url = f"spark://{_HOST}:{port}"
        """What `--master` takes."""
        self._workers: list[subprocess.Popen[bytes]] = []
        log = home / "master.log"
        _run(running, log, "master.Master", "--host", _HOST, "--webui-port", "0", "--port", str(port))
        _wait_for(log, "New state: ALIVE")

    def start_worker(self) -> None:
        """Of two cores, on a port and in a directory of its own."""
        log = self._home / f"worker-{len(self._workers)}.log"
        (port,) = free_ports(1)
        where = ("--host", _HOST, "--webui-port", "0", "-p", str(port), "-d", str(self._home / "work" / log.stem))
        size = ("--cores", "2", "--memory", "1g")
        self._workers.append(_run(self._running, log, "worker.Worker", *where, *size, self.url))
        _wait_for(log, "Successfully registered with master")

    def kill_worker(self) -> None:
        """The newest, without a word. Its executors end by themselves, in the middle of what they do."""
        self._workers[-1].kill()
        self._workers[-1].wait()

    def executors(self) -> list[str]:
        """What was said by each executor that workers have run so far."""
        return [path.read_text() for path in (self._home / "work").glob("*/app-*/*/stderr")]


@contextmanager
def running_cluster(home: Path) -> Iterator[SparkCluster]:
    """With one worker of two cores. Applications must set SPARK_LOCAL_IP, too: executors ask where the driver is."""
    with ExitStack() as running:
        cluster = SparkCluster(home, running)
        cluster.start_worker()
        yield cluster


def _run(running: ExitStack, log_path: Path, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
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
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for(log_path: Path, words: str) -> None:
    wait_until(lambda: words in log_path.read_text(), f"{log_path.name} says {words!r}", _PATIENCE_S)
