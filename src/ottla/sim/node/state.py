"""The node's state in memory that the checkers compare: bounds, producers, memory limits."""

import math
from dataclasses import dataclass, field

from ottla.broker.node import Node
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.waiters import Waiter
from ottla.config import FLUSH_MESSAGES
from ottla.core.metadata.names import is_internal
from ottla.sim.machine.disk import SimDisk
from ottla.sim.node.ledger import Key, name_of
from ottla.sim.played import Violation
from ottla.sim.records import decode_all

OPEN_REQUESTS_MAX = 64
QUEUED_BYTES_MAX = 1 << 20
FRAME_BYTES_MAX = 1 << 18


@dataclass(frozen=True, slots=True)
class LogFacts:
    start: int
    end: int
    data: bytes = field(repr=False)
    """All its bytes."""


ProducerFacts = tuple[int, int, int, int | None]


@dataclass(frozen=True, slots=True)
class Recovered:
    logs: dict[Key, LogFacts]
    producers: dict[Key, dict[int, ProducerFacts]]
    """Producer id to epoch, last sequence, last offset and where its open transaction begins."""
    internal: frozenset[Key]
    """The coordinators' logs."""

    @property
    def starts(self) -> dict[Key, int]:
        return {key: log.start for key, log in self.logs.items()}

    @property
    def ends(self) -> dict[Key, int]:
        return {key: log.end for key, log in self.logs.items()}

    @property
    def ends_of_records(self) -> dict[Key, int]:
        """Without the markers at the end of a log: a coordinator may have written them as soon as it was loaded."""
        ends = {}
        for key, log in self.logs.items():
            ends[key] = log.end
            for batch in reversed([*decode_all(log.data)]):
                if not batch.is_control or batch.last_offset + 1 != ends[key]:
                    break
                ends[key] = batch.base_offset
        return ends


def partitions(node: Node) -> list[tuple[Key, Partition]]:
    """In the order of names and numbers."""
    found = []
    for topic, index, _ in node.metadata.image.partitions():
        partition = node.partitions.find(topic.name, index)
        if partition is not None:
            found.append(((topic.topic_id, index), partition))
    return found


def recovered(node: Node) -> Recovered:
    logs, producers = {}, {}
    for key, partition in partitions(node):
        log = partition.log.state
        logs[key] = LogFacts(log.log_start_offset, log.end_offset, log_data(node, partition))
        producers[key] = {
            producer_id: (known.epoch, known.last_sequence, known.last_data_offset, known.txn_first_offset)
            for producer_id, known in sorted(log.producers.by_id.items())
        }
    internal = [topic.topic_id for topic in node.metadata.image.topics.values() if is_internal(topic.name)]
    return Recovered(logs, producers, frozenset(key for key in logs if key[0] in internal))


def log_data(node: Node, partition: Partition) -> bytes:
    """The bytes of the files, read directly: not a step of the disk."""
    disk = node.store.disk
    assert isinstance(disk, SimDisk)
    paths = [partition.log.here.of(segment).path(".log") for segment in partition.log.state.segments]
    return b"".join(disk.peek(path) for path in paths)


def check_same(first: Recovered, again: Recovered) -> None:
    """I22: recovering twice gives the same; a coordinator may have ended transactions meanwhile."""
    if first.logs.keys() != again.logs.keys():
        raise Violation("I22", f"recovered once: {list(first.logs)}; recovered twice: {list(again.logs)}")
    for key, log in first.logs.items():
        other = again.logs[key]
        added = other.data[len(log.data) :]
        ours = key in again.internal or all(batch.is_control for batch in decode_all(added))
        if log.start != other.start or not other.data.startswith(log.data) or not ours:
            raise Violation("I22", f"{name_of(key)} recovered once: {log}; recovered twice: {other}")


def check_producers(before: Recovered, after: Recovered) -> None:
    """I19: the rebuilt producer state equals that of the previous process."""
    for key, known in before.producers.items():
        if key not in after.producers or after.logs[key].end > before.logs[key].end:
            continue  # A coordinator has ended transactions as soon as it was loaded.
        for producer_id, state in known.items():
            rebuilt = after.producers[key].get(producer_id)
            forgotten = rebuilt is None and state[2] < after.logs[key].start
            if rebuilt != state and not forgotten:
                raise Violation(
                    "I19", f"{name_of(key)}: producer {producer_id} was at {state}, after the restart at {rebuilt}"
                )


class NodeObserver:
    """Observes a node repeatedly, and remembers its offsets."""

    def __init__(self, *, open_s_max: float = math.inf) -> None:
        """`open_s_max`: how long a transaction may be open while a node runs."""
        self._open_s_max = open_s_max
        self._watermarks: dict[Key, int] = {}
        self._open_since: dict[tuple[Key, int], float] = {}
        """By partition and first offset of a transaction."""
        self._node: Node | None = None

    def look(self, node: Node, now: float) -> None:
        if node is not self._node:
            self._node = node
            self._watermarks.clear()
            self._open_since.clear()
        for key, partition in partitions(node):
            self._check_bounds(key, partition)
            self._check_open(key, partition, now)
        _check_budgets(node)

    def _check_open(self, key: Key, partition: Partition, now: float) -> None:
        """I24, of the oldest one: the others are checked when it is gone."""
        log = partition.log.state
        if log.last_stable_offset == log.end_offset:
            return
        oldest = log.producers.first_unstable_offset
        if oldest is not None:
            open_s = now - self._open_since.setdefault((key, oldest), now)
            if open_s > self._open_s_max:
                raise Violation("I24", f"{name_of(key)}: the transaction at {oldest} is open for {open_s:.1f} s")

    def _check_bounds(self, key: Key, partition: Partition) -> None:
        log = partition.log.state
        stable, watermark, end = log.last_stable_offset, log.high_watermark, log.end_offset
        if not stable <= watermark <= end:
            raise Violation("I14", f"{name_of(key)}: stable {stable}, watermark {watermark}, end {end}")
        if watermark < self._watermarks.get(key, 0):
            raise Violation("I14", f"{name_of(key)}: the watermark was {self._watermarks[key]} and is {watermark}")
        self._watermarks[key] = watermark
        if log.config[FLUSH_MESSAGES] == 1 and watermark > max(log.recovery_point, log.log_start_offset):
            raise Violation("I18", f"{name_of(key)}: readable up to {watermark}, synced up to {log.recovery_point}")


def fetches_waiting(partition: Partition) -> list[Waiter]:
    """Waiters of fetches, without those of coordinators."""
    return [waiter for waiter in partition.waiters if isinstance(waiter, Waiter)]


def _check_budgets(node: Node) -> None:
    """I26: the memory of connections is limited, and closed connections hold none."""
    logs = [partition for _, partition in partitions(node)]
    everything = sum(partition.log.state.size for partition in logs)
    # Waiting fetches are answered together; over a transport without a socket each response is read into memory.
    held_bytes_max = QUEUED_BYTES_MAX + FRAME_BYTES_MAX + OPEN_REQUESTS_MAX * (everything + 10_000)
    waiters = {waiter: None for partition in logs for waiter in fetches_waiting(partition)}
    open_requests = sum(connection.open_requests for connection in node.connections)
    if len(waiters) > open_requests:
        raise Violation("I26", f"{len(waiters)} fetches wait, {open_requests} requests are open")
    for connection in node.connections:
        if connection.open_requests > OPEN_REQUESTS_MAX:
            raise Violation("I26", f"{connection.peer} has {connection.open_requests} requests open")
        if connection.held_bytes > held_bytes_max:
            raise Violation("I26", f"{connection.peer} holds {connection.held_bytes} bytes")
