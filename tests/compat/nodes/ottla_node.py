"""A real Ottla: `ottla serve` in a process of its own, on a free port of the loopback, in a directory of its own.

The directory and the port outlive the process, so a test may stop or kill the node and start it again where its clients
expect it.
"""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

OTTLA = Path(sys.executable).with_name("ottla")
READY = re.compile(r"is ready on (\S+):(\d+)")
PATIENCE_S = 240.0
MIB = 1 << 20


class NodeFailedError(Exception):
    """The node ended, or did not come to a state in time; the end of its log is in the text."""


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Return as soon as the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise NodeFailedError(f"{what}: not within {timeout_s} s")
        time.sleep(0.01)


class OttlaNode:
    """One node on one directory. `start` and `stop` (or `kill`) may alternate; the log file is kept throughout."""

    def __init__(
        self, home: Path, settings: Mapping[str, str] | None = None, *, properties_file: Path | None = None
    ) -> None:
        self._settings = dict(settings or {})
        self._properties_file = properties_file
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self.home = home
        self.log_dir = home / "data"
        self.log_path = home / "server.log"
        self.host, self.port = "127.0.0.1", 0

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def command(self) -> list[str]:
        """What a person would type; the port is kept once it is known. A file of settings says all by itself."""
        self.home.mkdir(parents=True, exist_ok=True)
        if self._properties_file is not None:
            return [str(OTTLA), "serve", str(self._properties_file)]
        settings = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        where = ["--data-dir", str(self.log_dir), "--listener", f"{self.host}:{self.port}"]
        return [str(OTTLA), "serve", *where, *settings]

    def start(self) -> None:
        """Run the node; return when it says that it takes requests."""
        command = self.command()
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.home
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """Shut down as an operator would."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process without a word, as a crash does."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def process(self) -> psutil.Process:
        """For what the system knows of it: memory, descriptors."""
        assert self._process is not None, "the node does not run"
        return psutil.Process(self._process.pid)

    @property
    def memory_bytes(self) -> int:
        return int(self.process.memory_info().rss)

    @property
    def memory_peak_bytes(self) -> int:
        """The most it ever had in memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None, status
        return int(found[1]) * 1024

    def log(self) -> str:
        """What the node said since its last start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def warnings(self) -> list[str]:
        """The lines of the log that speak of something unexpected."""
        return [line for line in self.log().splitlines() if " WARNING " in line or " ERROR " in line or "Trace" in line]

    def _wait_until_ready(self) -> None:
        def said_so() -> bool:
            if not self.running:
                raise NodeFailedError(f"the node ended before it was ready:\n{self.log()[-4000:]}")
            found = READY.search(self.log())
            if found is not None:
                self.port = int(found[2])
            return found is not None

        try:
            wait_until(said_so, "the node is ready")
        except NodeFailedError:
            self.kill()
            raise

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise NodeFailedError(f"the node did not stop:\n{self.log()[-4000:]}") from None
        finally:
            self._process = None


@contextmanager
def running_node(home: Path, settings: Mapping[str, str] | None = None) -> Iterator[OttlaNode]:
    """A started node, stopped (if it still runs) when the block ends."""
    node = OttlaNode(home, settings)
    node.start()
    try:
        yield node
    except BaseException:
        node.kill()
        raise
    node.stop()
