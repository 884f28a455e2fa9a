"""What a node has in memory, as the checkers compare it: bounds, producers, budgets."""

import hashlib
from dataclasses import dataclass

from ottla.broker.node import Node
from ottla.broker.partition import Partition
from ottla.config import FLUSH_MESSAGES
from ottla.sim.checkers import Violation
from ottla.sim.node.ledger import Key, name_of

OPEN_REQUESTS_MAX = 64
QUEUED_BYTES_MAX = 1 << 20
FRAME_BYTES_MAX = 1 << 18


@dataclass(frozen=True, slots=True)
class LogState:
    start: int
    end: int
    digest: str
    """Of all its bytes."""


@dataclass(frozen=True, slots=True)
class Recovered:
    logs: dict[Key, LogState]
    producers: dict[Key, dict[int, tuple[int, int, int]]]
    """Producer id to epoch, last sequence and last offset."""

    @property
    def ends(self) -> dict[Key, int]:
        return {key: log.end for key, log in self.logs.items()}


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
        log = partition.log.log
        logs[key] = LogState(log.log_start_offset, log.end_offset, _digest(node, partition))
        producers[key] = {
            producer_id: (known.epoch, known.last_sequence, known.last_data_offset)
            for producer_id, known in sorted(log.producers.by_id.items())
        }
    return Recovered(logs, producers)


def _digest(node: Node, partition: Partition) -> str:
    """Of the files, read past the node: to look is no step of its disk."""
    digest = hashlib.blake2b(digest_size=8)
    contents = node.store.disk.contents()  # type: ignore[attr-defined]
    for segment in partition.log.log.segments:
        digest.update(contents[partition.log.here.of(segment).path(".log")] or b"")
    return digest.hexdigest()


def check_producers(before: Recovered, after: Recovered) -> None:
    """I19: what a node rebuilds of its producers is what the one before it knew."""
    for key, known in before.producers.items():
        if key not in after.producers:
            continue
        for producer_id, state in known.items():
            rebuilt = after.producers[key].get(producer_id)
            forgotten = rebuilt is None and state[2] < after.logs[key].start
            if rebuilt != state and not forgotten:
                raise Violation(
                    "I19", f"{name_of(key)}: producer {producer_id} was at {state}, after the restart at {rebuilt}"
                )


class Watch:
    """Looks at a node again and again, and remembers how far it was."""

    def __init__(self) -> None:
        self._watermarks: dict[Key, int] = {}
        self._node: Node | None = None

    def look(self, node: Node) -> None:
        if node is not self._node:
            self._node = node
            self._watermarks.clear()
        for key, partition in partitions(node):
            self._check_bounds(key, partition)
        _check_budgets(node)

    def _check_bounds(self, key: Key, partition: Partition) -> None:
        log = partition.log.log
        stable, watermark, end = log.last_stable_offset, log.high_watermark, log.end_offset
        if not stable <= watermark <= end:
            raise Violation("I14", f"{name_of(key)}: stable {stable}, watermark {watermark}, end {end}")
        if watermark < self._watermarks.get(key, 0):
            raise Violation("I14", f"{name_of(key)}: the watermark was {self._watermarks[key]} and is {watermark}")
        self._watermarks[key] = watermark
        if log.config[FLUSH_MESSAGES] == 1 and watermark > max(log.recovery_point, log.log_start_offset):
            raise Violation("I18", f"{name_of(key)}: readable up to {watermark}, synced up to {log.recovery_point}")


def _check_budgets(node: Node) -> None:
    """I26: what connections may hold, and what is held for those that are gone: nothing."""
    logs = [partition for _, partition in partitions(node)]
    everything = sum(partition.log.log.size for partition in logs)
    # Fetches that wait are answered together; over a transport without a socket each answer is read into memory.
    held_bytes_max = QUEUED_BYTES_MAX + FRAME_BYTES_MAX + OPEN_REQUESTS_MAX * (everything + 10_000)
    waiters = {waiter: None for partition in logs for waiter in partition.waiters}
    open_requests = sum(connection.open_requests for connection in node.connections)
    if len(waiters) > open_requests:
        raise Violation("I26", f"{len(waiters)} fetches wait, {open_requests} requests are open")
    for connection in node.connections:
        if connection.open_requests > OPEN_REQUESTS_MAX:
            raise Violation("I26", f"{connection.peer} has {connection.open_requests} requests open")
        if connection.held_bytes > held_bytes_max:
            raise Violation("I26", f"{connection.peer} holds {connection.held_bytes} bytes")
