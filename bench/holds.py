"""How long one request blocks the event loop, and how much memory it takes: every API, with very many elements."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench import sweep
from bench.report import Section, Table, verdict
from bench.sizes import MiB, Sizes
from bench.sweep import Hostile
from bench.watched import Holds
from ottla.broker.network.dispatch import ROUTES
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.frame import decode_response, encode_request
from ottla.wire.schema import message_of

HOLD_S_AIM = 0.05
MEMORY_AIM = 64 * MiB
"""Beyond the request itself."""
_ROOT = Path(__file__).parents[1]
_SIZE = Struct(">i")
_TIMEOUT_S = 300.0
_SHOWN = 25


class Measured(NamedTuple):
    request: Hostile
    cpu_s: float
    """The longest time that the loop's thread worked without a pause."""
    wall_s: float
    memory: int
    """The node's memory beyond the size of the request."""
    answer: int | None
    """Bytes; None if the connection was closed instead."""
    seconds: float


class Watched:
    """A node that reports how long its loop is blocked."""

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None) -> None:
        self._log = home / "server.log"
        self.holds = Holds(home / "holds")
        given = [word for name, value in (settings or {}).items() for word in ("--set", f"{name}={value}")]
        where = ["--data-dir", str(home / "data"), "--listener", "127.0.0.1:0"]
        command = [sys.executable, "-m", "bench.watched", str(home / "holds"), "serve", *where, *given]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=_ROOT)
        self.port = self._wait_until_ready()

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def memory(self, what: str) -> int:
        """`VmRSS` or `VmHWM`, in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(what + ":"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"the node has ended:\n{self.said()[-4000:]}")

    def reset_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def call(self, request: object, version: int) -> object:
        api_key = message_of(type(request)).api_key
        assert api_key is not None
        answer = self.ask(b"".join(encode_request(request, version, 1, "c")))
        assert answer is not None, self.said()[-4000:]
        return decode_response(api_key, version, answer)[1]

    def ask(self, frame: bytes) -> bytes | None:
        """The response; None if the connection ends without one."""
        with socket.create_connection(("127.0.0.1", self.port), _TIMEOUT_S) as connection:
            try:
                connection.sendall(frame)
                head = _received(connection, _SIZE.size)
                return None if head is None else _received(connection, _SIZE.unpack(head)[0])
            except ConnectionError:
                return None

    def stop(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _wait_until_ready(self) -> int:
        while True:
            _, found, rest = self.said().partition("is ready on 127.0.0.1:")
            if found and "\n" in rest:
                return int(rest.split()[0])
            if self._process.poll() is not None:
                raise RuntimeError(f"the node did not start:\n{self.said()[-4000:]}")
            time.sleep(0.01)


def _received(connection: socket.socket, count: int) -> bytes | None:
    data = bytearray(count)
    view, filled = memoryview(data), 0
    while filled < count:
        size = connection.recv_into(view[filled:])
        if not size:
            return None
        filled += size
    return bytes(data)


@contextmanager
def watched_node(home: Path, settings: Mapping[str, str] | None = None) -> Iterator[Watched]:
    node = Watched(home, settings)
    try:
        yield node
    finally:
        node.stop()


def prepare(node: Watched) -> bytes:
    """Create what the requests name; returns the topic's id."""
    topic = CreatableTopic(
        name=sweep.TOPIC, num_partitions=sweep.PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    node.call(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    for key_type in (0, 1):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
        while node.call(request, 4).coordinators[0].error_code:  # type: ignore[attr-defined]
            time.sleep(0.01)
    named = MetadataRequest(topics=[MetadataRequestTopic(name=sweep.TOPIC)])
    topic_id: bytes = node.call(named, 12).topics[0].topic_id  # type: ignore[attr-defined]
    return topic_id


def measure(node: Watched, request: Hostile) -> Measured:
    node.holds.reset()
    node.reset_peak()
    before, began = node.memory("VmRSS"), time.perf_counter()
    answer = node.ask(request.frame)
    seconds = time.perf_counter() - began
    hold = node.holds.read()
    grown = node.memory("VmHWM") - before - len(request.frame)
    return Measured(request, hold.cpu_s, hold.wall_s, grown, None if answer is None else len(answer), seconds)


def measure_all(node: Watched, size: int, load: str) -> Iterator[Measured]:
    """Every API with `load` in its name."""
    topic_id = prepare(node)
    for api in sorted(ROUTES):
        if load.upper() in api.name:
            for request in sweep.requests(size, topic_id, thorough=True, only=api):
                node.ask(request.frame)  # Once before, for what is compiled or imported once.
                yield measure(node, request)


def run(sizes: Sizes) -> Section:
    section = Section(
        "Holds: one request of every API, with very much in it",
        "Requests made from the declarations, each with one array as long as fits into its size, sent to a node of its "
        "own (`ottla serve`), one after the other. `hold` is CPU time that the thread of the event loop used without "
        "looking at anything else, the longest while a request was served. `MiB` is the most that the node took beyond "
        "the request itself.",
    )
    for size in sizes.sweep_bytes:
        with TemporaryDirectory() as path, watched_node(Path(path)) as node:
            found = []
            for one in measure_all(node, size, sizes.load):
                found.append(one)
                print(
                    f"{one.cpu_s * 1000:8.1f} ms {one.memory / MiB:6.1f} MiB {one.seconds:6.2f} s "
                    f"{'closed' if one.answer is None else one.answer:>10} {one.request}",
                    flush=True,
                )
        section.tables += _tables(found, size)
        hold_s, memory = max(one.cpu_s for one in found), max(one.memory for one in found)
        section.findings += [
            f"{size / MiB:g} MiB, longest hold: {verdict(hold_s * 1000, HOLD_S_AIM * 1000, ' ms')}",
            f"{size / MiB:g} MiB, most memory: {verdict(memory / MiB, MEMORY_AIM / MiB, ' MiB')}",
        ]
    return section


def _tables(found: list[Measured], size: int) -> list[Table]:
    tables = []
    for title, key in (("Longest holds", lambda one: one.cpu_s), ("Most memory", lambda one: one.memory)):
        table = Table(
            f"{title} of {len(found)} requests of {size / MiB:g} MiB",
            ["request", "hold ms", "MiB", "answer bytes", "s"],
        )
        for one in sorted(found, key=key, reverse=True)[:_SHOWN]:
            request = f"{one.request.api.name} v{one.request.version} {one.request.shape}"
            table.add(request, one.cpu_s * 1000, one.memory / MiB, one.answer, one.seconds)
        tables.append(table)
    return tables
