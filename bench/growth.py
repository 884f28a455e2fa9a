"""Shared by the measurements of growth: a running node, its costs for a piece of work, and the delay of others."""

import resource
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.nodes import Node, Ottla
from bench.raw_client import RawConnection, frame
from bench.report import FLAT, Cell
from ottla.wire.api import ApiKey
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.frame import decode_response

TOPIC = "growth"
HASTE = 60
"""The factor by which maintenance intervals are shortened, so that a second shows what a minute costs."""
_CREATE_TOPICS_VERSION = 7
_ASK_EVERY_S = 0.002
_SETTLE_S = 0.1
_AT_REST_CPU_S = 0.002

HASTY = {
    "log.retention.check.interval.ms": 300_000 // HASTE,
    "log.flush.offset.checkpoint.interval.ms": 60_000 // HASTE,
    "log.flush.start.offset.checkpoint.interval.ms": 60_000 // HASTE,
    "replica.high.watermark.checkpoint.interval.ms": 5_000 // HASTE,
    "log.cleaner.backoff.ms": 15_000 // HASTE,
    "log.initial.task.delay.ms": 0,
}


class Spent:
    """The node's costs while the block ran; `pause_ms` is the longest delay of a small request."""

    wall_s = 0.0
    cpu_s = 0.0
    pause_ms = 0.0

    def cpu_us(self, count: int) -> float:
        return self.cpu_s / count * 1e6


@contextmanager
def spending(node: Node, *, beside: bool = False) -> Iterator[Spent]:
    """With `beside`, another client sends ApiVersions all the time, so that pauses of the event loop show."""
    spent = Spent()
    somebody = _Somebody(node.port) if beside else None
    wall, cpu = time.perf_counter(), node.cpu_s()
    yield spent
    spent.wall_s, spent.cpu_s = time.perf_counter() - wall, node.cpu_s() - cpu
    if somebody is not None:
        spent.pause_ms = somebody.stop()


def settle(node: Node) -> None:
    """Wait until the node has finished its work."""
    before, now = -1.0, node.cpu_s()
    while now - before > _AT_REST_CPU_S:
        time.sleep(_SETTLE_S)
        before, now = now, node.cpu_s()


def stopping(node: Node) -> Spent:
    """Stop the node; returns the costs."""
    spent = Spent()
    ended, wall, cpu = _cpu_s_of_ended(), time.perf_counter(), node.cpu_s()
    node.stop()
    spent.wall_s, spent.cpu_s = time.perf_counter() - wall, _cpu_s_of_ended() - ended - cpu
    return spent


def _cpu_s_of_ended() -> float:
    """CPU seconds of all processes that were started here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class _Somebody:
    def __init__(self, port: int) -> None:
        self._connection = RawConnection(port)
        self._longest_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        request = frame(ApiVersionsRequest(client_software_name="bench", client_software_version="1"), 3)
        while not self._ended.wait(_ASK_EVERY_S):
            asked = time.perf_counter()
            self._connection.ask(request)
            self._longest_s = max(self._longest_s, time.perf_counter() - asked)

    def stop(self) -> float:
        self._ended.set()
        self._thread.join()
        self._connection.socket.close()
        return self._longest_s * 1e3


@contextmanager
def running(home: Path, settings: Mapping[str, object] | None = None) -> Iterator[Node]:
    """A node on this directory, new or not; stopped cleanly unless the block killed it."""
    node = Node(Ottla(settings), home)
    try:
        yield node
    finally:
        node.stop()


def make_topic(connection: RawConnection, partitions: int, topic: str = TOPIC) -> None:
    wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=60_000, validate_only=False)
    answer = connection.ask(frame(request, _CREATE_TOPICS_VERSION))
    (made,) = decode_response(ApiKey.CREATE_TOPICS, _CREATE_TOPICS_VERSION, answer)[1].topics
    if made.error_code:
        raise RuntimeError(f"the topic was not made: error {made.error_code}, {made.error_message}")


def compared(what: str, smallest: Cell, largest: Cell, why: str) -> str:
    """ "flat", or the growth and its reason."""
    assert isinstance(smallest, float)
    assert isinstance(largest, float)
    if largest <= FLAT * smallest:
        return f"{what}: flat."
    return f"{what}: grows {largest / smallest:,.1f} times. {why}"
