"""The two brokers that are measured, each in its own process and directory."""

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from peers.broker import CLUSTER_ID, SETTINGS, free_ports
from peers.jars import fetch_jars, missing_programs
from peers.jvm import LOGGING, run_tool

from ottla.kernel.choice import IMPLEMENTATION, VARIABLE

HEAP = ("-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_START_S_MAX = 60.0
_CPU_CLOCK_OF_PROCESS = 2
"""Linux's number of a process's CPU clock, combined with its id; it counts nanoseconds, not ticks."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""The smallest cost that is reported."""


class BrokerEnded(Exception):
    """A broker under measurement has ended."""


class Broker(Protocol):
    """The differences between the two: a name, and how to run it."""

    name: str

    def prepare(self, home: Path, port: int) -> list[str]:
        """Prepare the directory; returns the command line of the broker."""


class Ottla:
    name = "Ottla"

    def __init__(self, settings: Mapping[str, object] | None = None, *, kernel: str = IMPLEMENTATION) -> None:
        self._settings = settings or {}
        self._kernel = kernel

    def prepare(self, home: Path, port: int) -> list[str]:
        program = ["env", f"{VARIABLE}={self._kernel}", str(Path(sys.executable).with_name("ottla"))]
        given = [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        return [*program, "serve", "--data-dir", str(home / "data"), "--listener", f"127.0.0.1:{port}", *given]


class Kafka:
    name = "Kafka"

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self._settings = settings or {}
        if missing := missing_programs():
            raise BrokerEnded(f"{' and '.join(missing)} not found: Apache Kafka cannot run beside Ottla")
        self._jars = fetch_jars()

    def prepare(self, home: Path, port: int) -> list[str]:
        (controller_port,) = free_ports(1)
        settings = SETTINGS | {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(home / "data"),
        }
        properties = home / "server.properties"
        wanted = {**settings, **self._settings}
        properties.write_text("".join(f"{name}={value}\n" for name, value in wanted.items()))
        if not (home / "data" / "meta.properties").exists():
            run_tool(self._jars, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
        logging = f"-Dlog4j2.configurationFile={LOGGING}"
        return ["java", *HEAP, logging, "-cp", f"{self._jars}/*", "kafka.Kafka", str(properties)]


class Node:
    """A running broker."""

    def __init__(self, broker: Broker, home: Path) -> None:
        self.name = broker.name
        home.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._said = home / "output.log"
        command = broker.prepare(home, self.port)
        started = time.perf_counter()
        with self._said.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, cwd=home)
        try:
            self._wait_for_an_answer()
        except BaseException:
            self.stop()
            raise
        self.start_s = time.perf_counter() - started
        """From the command to the first answered request."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """User and system time of all threads so far."""
        return cpu_s_of(self.pid)

    def resident_bytes(self) -> int:
        return self._status("VmRSS")

    def resident_bytes_max(self) -> int:
        return self._status("VmHWM")

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """As a crash of the process: the system keeps what was written."""
        self._process.kill()
        self._process.wait()

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise BrokerEnded(f"{self.name} does not run any more:\n{self._end_of_output()}")

    def _wait_for_an_answer(self) -> None:
        deadline = time.monotonic() + _START_S_MAX
        while not answers(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise BrokerEnded(f"{self.name} does not answer:\n{self._end_of_output()}")
            time.sleep(0.005)

    def _end_of_output(self) -> str:
        return self._said.read_text(errors="replace")[-4000:]


def cpu_s_of(pid: int) -> float:
    """User and system time that a process has taken."""
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK_OF_PROCESS)


def answers(port: int) -> bool:
    """Whether a broker answers ApiVersions there."""
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(_API_VERSIONS_V0)
            return len(connection.recv(4)) == 4
    except OSError:
        return False


def starting_times(broker: Broker, home: Path, times: int) -> list[float]:
    """Times to the first response, on a new directory each time."""
    found = []
    for number in range(times):
        node = Node(broker, home / f"start-{broker.name}-{number}")
        found.append(node.start_s)
        node.stop()
    return found


MakeBroker = Callable[[], Broker]
