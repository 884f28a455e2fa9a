"""A real Apache Kafka: one node, broker and controller, on free ports of the loopback, in a directory of its own.

The directory outlives the process, so a test may stop or kill the node, look at its files, let Ottla write to them, and
start another node on the same directory.
"""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from peers.class_archive import made_once
from peers.jvm import archive_of, java, run_tool

CLUSTER_ID = "b3R0bGEtdGVzdC1jbHVzdA"
DATA = "data"
READY = "Kafka Server started"

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A killed node may register again only when its old session has ended.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.create.topics.enable": "false",
}


class BrokerFailedError(Exception):
    """The node ended, or did not come to a state in time; the end of its log is in the text."""


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 240) -> None:
    """Return as soon as the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise BrokerFailedError(f"{what}: not within {timeout_s} s")
        time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different because all are held until the last is known."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


class KafkaBroker:
    """One node on one directory. `start` and `stop` (or `kill`) may alternate; the log file is kept throughout."""

    def __init__(self, jars: Path, home: Path, settings: Mapping[str, str] | None = None) -> None:
        self._jars = jars
        self._home = home
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.log_dir = home / DATA
        self.log_path = home / "server.log"
        self.bootstrap = ""

    def start(self, flags: Sequence[str] | None = None) -> None:
        """Format the directory if it is new, run the node, return when it takes requests. `flags` as for `java`."""
        if flags is None:
            made_once(archive_of(self._jars), partial(_run_once, self._jars))
        properties = self._write_properties()
        if not (self.log_dir / "meta.properties").exists():
            run_tool(self._jars, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = self._spawn(properties, log, flags)
        self._wait_for(READY)

    def stop(self) -> None:
        """Shut down as an operator would: logs flushed, snapshots and the clean-shutdown mark written."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process without a word, as a crash does."""
        self._end(signal.SIGKILL)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What the node said since its last start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def warnings(self) -> list[str]:
        """The lines of the log that speak of something unexpected."""
        return [line for line in self.log().splitlines() if " WARN " in line or " ERROR " in line]

    def _write_properties(self) -> Path:
        client_port, controller_port = free_ports(2)
        self.bootstrap = f"127.0.0.1:{client_port}"
        settings = SETTINGS | self._settings
        settings["listeners"] = f"PLAINTEXT://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{controller_port}"
        settings["controller.quorum.voters"] = f"{settings['node.id']}@127.0.0.1:{controller_port}"
        settings["log.dirs"] = str(self.log_dir)
        self._home.mkdir(parents=True, exist_ok=True)
        properties = self._home / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return properties

    def _spawn(self, properties: Path, log: BinaryIO, flags: Sequence[str] | None) -> subprocess.Popen[bytes]:
        command = java(self._jars, "kafka.Kafka", str(properties), heap="512m", flags=flags)
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self._home)

    def _wait_for(self, text: str) -> None:
        def seen() -> bool:
            if not self.running:
                raise BrokerFailedError(f"the node ended before it said {text!r}:\n{self.log()[-4000:]}")
            return text in self.log()

        try:
            wait_until(seen, f"the node said {text!r}")
        except BrokerFailedError:
            self.kill()
            raise

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(240)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise BrokerFailedError(f"the node did not stop:\n{self.log()[-4000:]}") from None
        finally:
            self._process = None


def _run_once(jars: Path, flags: Sequence[str]) -> None:
    with TemporaryDirectory() as home:
        broker = KafkaBroker(jars, Path(home))
        broker.start(flags)
        broker.stop()


@contextmanager
def running_broker(jars: Path, home: Path, settings: Mapping[str, str] | None = None) -> Iterator[KafkaBroker]:
    """A started node, stopped (if it still runs) when the block ends."""
    broker = KafkaBroker(jars, home, settings)
    broker.start()
    try:
        yield broker
    except BaseException:
        broker.kill()
        raise
    broker.stop()


def copy_data(source: Path, home: Path) -> Path:
    """Copy a data directory to where a node with this home expects it."""
    return Path(shutil.copytree(source, home / DATA))
