"""Sends finished batches to the leaders of their partitions.

Rule 1: a partition's batches are stored once each, in the order they were added. As many are in flight as a broker
        remembers; by their sequence numbers it refuses gaps and recognises duplicates.
Rule 2: when a batch is not stored, the partition waits until all its batches in flight have an answer. Then those that
        were not stored are sent again, in their order and as the same bytes.
Rule 3: retriable errors (a leader that moved, a broker that restarts, a transaction's step in progress) are retried
        until `delivery_timeout_ms`. Any other error fails the epoch, of which no part may be committed.

How a Produce request is sent and judged, and how leaders are found, is shared with `client/producer`. The queues are
not: the producer keeps one batch of a partition in flight, because it may split a batch or stamp it again with another
producer id, and both would change the sequence numbers of batches behind it. Batches here are never changed, so several
can be in flight.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client import Client, ClientError, ProducerFenced, TopicPartition, Transactions
from ottla.client.client import RETRY
from ottla.client.core.accumulator import Batch
from ottla.client.core.errors import Misused
from ottla.client.leaders import find_leaders, known_leader
from ottla.client.produce_requests import send_batches
from ottla.kernel import BuiltBatch
from ottla.rpc.errors import Declined
from ottla.wire.errors import Error

UNDER_WAY_MAX: Final = 5
"""How many batches of a producer a broker remembers for each partition, to recognise duplicates."""


@dataclass(slots=True, eq=False)
class QueuedBatch(Batch):
    behind: bool = False
    """Other batches of its partition were in flight when it was sent, so OUT_OF_ORDER_SEQUENCE_NUMBER is retriable."""


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """One partition's batches, oldest first: those in flight, then those that wait."""

    partition: TopicPartition
    under_way: deque[QueuedBatch] = field(default_factory=deque)
    waiting: deque[QueuedBatch] = field(default_factory=deque)
    unanswered: int = 0
    refused: bool = False
    """A batch in flight was not stored: rule 2 applies."""
    not_before_ms: int = 0

    def may_send(self, now_ms: int) -> bool:
        return not self.refused and len(self.under_way) < UNDER_WAY_MAX and now_ms >= self.not_before_ms

    def again(self) -> None:
        """After all answers have come: put the batches that were not stored back before those that wait."""
        self.waiting.extendleft(reversed(self.under_way))
        self.under_way.clear()
        self.refused = False


class BatchSender:
    """Sends the batches of one epoch. The first failure ends it and is reported to `transactions`."""

    def __init__(self, client: Client, *, delivery_timeout_ms: int = 120_000, request_bytes: int = 1_048_576) -> None:
        self.transactions: Transactions | None = None
        self.held_bytes = 0
        self._client = client
        self._clock = client.ports.clock
        self._delivery_timeout_ms = delivery_timeout_ms
        self._request_bytes = request_bytes
        self._lanes: dict[TopicPartition, PartitionQueue] = {}
        self._ready: dict[TopicPartition, PartitionQueue] = {}  # The queues with batches that wait to be sent.
        self._failure: ClientError | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._finding: set[str] = set()
        self._moved = asyncio.Event()  # Set whenever a batch was stored or failed.

    def add(self, topic: str, built: Iterable[BuiltBatch]) -> None:
        """Queue batches, and send those that may be sent now."""
        now_ms = self._clock.monotonic_ms()
        for partition, _, data in built:
            name = TopicPartition(topic, partition)
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = PartitionQueue(name)
            lane.waiting.append(QueuedBatch(name, now_ms, size_max=len(data), data=data))
            self._ready[name] = lane
            self.held_bytes += len(data)
        self._send()

    async def room(self, held_bytes_max: int) -> None:
        """Wait until at most `held_bytes_max` are held. Raises the failure of any batch, also of earlier ones."""
        while True:
            if self._failure is not None:
                raise self._failure
            if self.held_bytes <= held_bytes_max:
                return
            self._moved.clear()
            await self._moved.wait()

    async def flush(self) -> None:
        await self.room(0)

    async def discard(self, reason: ClientError) -> None:
        """Drop what was not sent, and wait for the answers to the rest: none may arrive after the transaction's end."""
        self._failure = self._failure or reason
        self._ready.clear()
        while self._tasks:
            await asyncio.wait(self._tasks)

    # -- Sending

    def _send(self) -> None:
        """Send requests with one batch of each partition until no partition may send more."""
        while self._failure is None:
            now_ms = self._clock.monotonic_ms()
            requests: dict[int, list[PartitionQueue]] = {}
            for lane in self._ready.values():
                if lane.may_send(now_ms) and (leader := self._leader(lane.partition)) is not None:
                    requests.setdefault(leader, []).append(lane)
            if not requests:
                return
            for node, lanes in requests.items():
                for part in self._parts(lanes):
                    self._spawn(node, part)

    def _parts(self, lanes: list[PartitionQueue]) -> Iterable[list[PartitionQueue]]:
        part: list[PartitionQueue] = []
        size = 0
        for lane in lanes:
            if part and size + lane.waiting[0].size_max > self._request_bytes:
                yield part
                part, size = [], 0
            part.append(lane)
            size += lane.waiting[0].size_max
        yield part

    def _leader(self, partition: TopicPartition) -> int | None:
        """The leader; None, and a look-up is started, if it is not known."""
        leader = known_leader(self._client, partition)
        if leader is None and partition.topic not in self._finding:
            self._finding.add(partition.topic)
            self._start(self._find_leaders(partition.topic))
        return leader

    async def _find_leaders(self, topic: str) -> None:
        try:
            error = await find_leaders(self._client, [topic])
        finally:
            self._finding.discard(topic)
        self._give_up_late(topic, error or Misused(f"topic {topic}: no leader was found for a partition in time"))
        self._send()

    def _give_up_late(self, topic: str, reason: ClientError) -> None:
        """Fail the epoch if a batch of the topic has waited too long for a leader."""
        since_ms = self._clock.monotonic_ms() - self._delivery_timeout_ms
        for lane in self._ready.values():
            if lane.partition.topic == topic and lane.waiting[0].created_ms <= since_ms:
                self._fail(lane.waiting[0], reason)
                return

    def _spawn(self, node: int, lanes: list[PartitionQueue]) -> None:
        batches = [lane.waiting.popleft() for lane in lanes]
        for lane, batch in zip(lanes, batches, strict=True):
            batch.behind = bool(lane.under_way)
            lane.under_way.append(batch)
            lane.unanswered += 1
            if not lane.waiting:
                del self._ready[lane.partition]
        self._start(self._deliver(node, batches))

    async def _deliver(self, node: int, batches: list[QueuedBatch]) -> None:
        timeout_ms = self._client.request_timeout_ms
        answers = await send_batches(
            self._client, node, batches, timeout_ms=lambda: timeout_ms, transactions=self.transactions
        )
        for batch, answer in zip(batches, answers, strict=True):
            self._answered(batch, answer.error)
        self._send()

    # -- Answers

    def _answered(self, batch: QueuedBatch, error: ClientError | None) -> None:
        lane = self._lanes[batch.partition]
        lane.unanswered -= 1
        if error is None:
            lane.under_way.remove(batch)
            self.held_bytes -= batch.size_max
            self._moved.set()
        else:
            self._not_stored(lane, batch, error)
        if lane.refused and lane.unanswered == 0:
            lane.again()
            self._ready[lane.partition] = lane

    def _not_stored(self, lane: PartitionQueue, batch: QueuedBatch, error: ClientError) -> None:
        batch.attempt_failed(error)
        lane.refused = True
        self._client.metadata.stale(batch.partition.topic)
        code = error.error if isinstance(error, Declined) else None
        overtook = code is Error.OUT_OF_ORDER_SEQUENCE_NUMBER and batch.behind
        now_ms = self._clock.monotonic_ms()
        if not (error.retriable or overtook) or now_ms - batch.created_ms >= self._delivery_timeout_ms:
            self._fail(batch, error)
            return
        wait_ms = RETRY.wait_ms(batch.attempts, self._client.ports.random)
        lane.not_before_ms = max(lane.not_before_ms, now_ms + wait_ms)
        self._start(self._later(wait_ms))

    async def _later(self, wait_ms: int) -> None:
        await asyncio.sleep(wait_ms / 1000 + 0.001)
        self._send()

    def _fail(self, batch: QueuedBatch, error: ClientError) -> None:
        # ProducerFenced is not wrapped: it concerns the whole producer.
        failure = error if isinstance(error, ProducerFenced) else batch.delivery_error(error)
        if self.transactions is not None:
            self.transactions.lost(failure)
        self._failure = self._failure or failure
        self._moved.set()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._failure = self._failure or ClientError(f"sending failed: {defect!r}")
            self._moved.set()
