"""Batches that are built already, on their way to the leaders of their partitions.

Rule 1: a partition's batches are stored in the order they were added, once each. Several may be under way, as many as
        a broker remembers; their sequence numbers say what is missing and what came twice.
Rule 2: when one of them is not taken, the partition waits until all that are under way have their answers; then those
        that were not taken are sent again, in their order, as the same bytes.
Rule 3: what a moment may mend (a leader that moved, a broker that restarts, a transaction's step under way) is tried
        again until `delivery_timeout_ms`. Anything else fails the whole: there is no half of an epoch.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.client import Client, ClientError, ProducerFenced, TopicPartition, Transactions
from ottla.client.client import RETRY
from ottla.client.core.accumulator import Batch
from ottla.client.core.errors import Declined, DeliveryFailed, DeliveryUnknown, Misused, error_of
from ottla.client.produce_requests import answers_by_partition, produce_request
from ottla.client.producer import ALL
from ottla.kernel import BuiltBatch, Codec
from ottla.wire.api.produce import ProduceResponse
from ottla.wire.errors import Error
from ottla.wire.types import NO_UUID

UNDER_WAY_MAX: Final = 5
"""So many batches of a producer a broker remembers of each partition, and so knows when one comes twice."""
_WITH_NAMES: Final = 12  # Last version of Produce that names topics; later ones carry their ids.
_STORED: Final = (Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER)


@dataclass(slots=True, eq=False)
class Outgoing(Batch):
    behind: bool = False
    """Others of its partition were under way when it was last sent: that it came too early says nothing."""


@dataclass(slots=True, eq=False)
class Lane:
    """One partition's batches, oldest first: those under way, then those that wait."""

    partition: TopicPartition
    under_way: deque[Outgoing] = field(default_factory=deque)
    waiting: deque[Outgoing] = field(default_factory=deque)
    unanswered: int = 0
    refused: bool = False
    """One of those under way was not taken: see rule 2."""
    not_before_ms: int = 0

    def may_send(self, now_ms: int) -> bool:
        return not self.refused and len(self.under_way) < UNDER_WAY_MAX and now_ms >= self.not_before_ms

    def again(self) -> None:
        """All have their answers: what was not taken waits again, before the others."""
        self.waiting.extendleft(reversed(self.under_way))
        self.under_way.clear()
        self.refused = False


class BatchSender:
    """Sends batches for one epoch. The first failure ends it; `transactions` hears of it."""

    def __init__(self, client: Client, *, delivery_timeout_ms: int = 120_000, request_bytes: int = 1_048_576) -> None:
        self.transactions: Transactions | None = None
        self.held_bytes = 0
        self._client = client
        self._clock = client.ports.clock
        self._delivery_timeout_ms = delivery_timeout_ms
        self._request_bytes = request_bytes
        self._lanes: dict[TopicPartition, Lane] = {}
        self._ready: dict[TopicPartition, Lane] = {}  # Those where something waits.
        self._failure: ClientError | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._finding: set[str] = set()
        self._moved = asyncio.Event()  # Pulses whenever something was stored or went wrong.

    def add(self, topic: str, built: Iterable[BuiltBatch]) -> None:
        """Take batches and send what may be sent."""
        now_ms = self._clock.monotonic_ms()
        for partition, _, data in built:
            name = TopicPartition(topic, partition)
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = Lane(name)
            lane.waiting.append(Outgoing(name, now_ms, size_max=len(data), data=data))
            self._ready[name] = lane
            self.held_bytes += len(data)
        self._send()

    async def room(self, held_bytes_max: int) -> None:
        """Wait until no more than that is held. Raises what went wrong, also with earlier batches."""
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
        """Drop what was not sent, and wait for the answers to what was: none may arrive after the end."""
        self._failure = self._failure or reason
        self._ready.clear()
        while self._tasks:
            await asyncio.wait(self._tasks)

    # -- Sending

    def _send(self) -> None:
        """One batch of each partition a request, until no partition may send more."""
        while self._failure is None:
            now_ms = self._clock.monotonic_ms()
            requests: dict[int, list[Lane]] = {}
            for lane in self._ready.values():
                if lane.may_send(now_ms) and (leader := self._leader(lane.partition)) is not None:
                    requests.setdefault(leader, []).append(lane)
            if not requests:
                return
            for node, lanes in requests.items():
                for part in self._parts(lanes):
                    self._spawn(node, part)

    def _parts(self, lanes: list[Lane]) -> Iterable[list[Lane]]:
        part: list[Lane] = []
        size = 0
        for lane in lanes:
            if part and size + lane.waiting[0].size_max > self._request_bytes:
                yield part
                part, size = [], 0
            part.append(lane)
            size += lane.waiting[0].size_max
        yield part

    def _leader(self, partition: TopicPartition) -> int | None:
        """The leader; None while it is looked for."""
        leader = self._client.cluster.leader(partition)
        if leader >= 0 and self._client.metadata.is_fresh(partition.topic):
            return leader
        if partition.topic not in self._finding:
            self._finding.add(partition.topic)
            self._start(self._find_leaders(partition.topic))
        return None

    async def _find_leaders(self, topic: str) -> None:
        reason: ClientError = Misused(f"topic {topic}: no leader was found for a partition in time")
        try:
            self._client.metadata.stale(topic)
            await self._client.metadata.refresh([topic])
            known = self._client.cluster.topics.get(topic)
            if known is None or len(known.led) < len(known.partitions):
                await asyncio.sleep(RETRY.wait_ms(1, self._client.ports.random) / 1000)  # Elections take a moment.
        except ClientError as error:
            reason = error
            await asyncio.sleep(RETRY.wait_ms(2, self._client.ports.random) / 1000)
        finally:
            self._finding.discard(topic)
        self._give_up_late(topic, reason)
        self._send()

    def _give_up_late(self, topic: str, reason: ClientError) -> None:
        """End it when a batch of the topic has waited too long for a leader."""
        since_ms = self._clock.monotonic_ms() - self._delivery_timeout_ms
        for lane in self._ready.values():
            if lane.partition.topic == topic and lane.waiting[0].created_ms <= since_ms:
                self._fail(lane.waiting[0], reason)
                return

    def _spawn(self, node: int, lanes: list[Lane]) -> None:
        batches = [lane.waiting.popleft() for lane in lanes]
        for lane, batch in zip(lanes, batches, strict=True):
            batch.behind = bool(lane.under_way)
            lane.under_way.append(batch)
            lane.unanswered += 1
            if not lane.waiting:
                del self._ready[lane.partition]
        self._start(self._deliver(node, batches))

    async def _deliver(self, node: int, batches: list[Outgoing]) -> None:
        try:
            request = produce_request(self._client, batches, acks=ALL, codec=Codec.NONE, level=None)
            at_most = _WITH_NAMES if any(topic.topic_id == NO_UUID for topic in request.topic_data) else None
            if self.transactions is not None:
                await self.transactions.admit(batches)
                request.transactional_id = self.transactions.transactional_id
                at_most = self.transactions.produce_version_max or at_most
            connection = await self._client.brokers.node(node)
            timeout_ms = self._client.request_timeout_ms
            answer: ProduceResponse = await connection.call(request, timeout_ms=timeout_ms, at_most=at_most)
        except ClientError as error:
            for batch in batches:
                self._answered(batch, error)
        else:
            answers = answers_by_partition(answer, self._client.cluster)
            for batch in batches:
                told = answers.get(batch.partition)
                code = Error.NETWORK_EXCEPTION if told is None else error_of(told.error_code)
                text = None
                if told is not None:
                    reasons = [one.batch_index_error_message for one in told.record_errors]
                    text = next((reason for reason in reasons if reason), told.error_message)
                subject = f"partition {batch.partition}"
                refusal = Declined(code, broker=connection.address, subject=subject, text=text)
                self._answered(batch, None if code in _STORED else refusal)
        self._send()

    # -- The fate of batches

    def _answered(self, batch: Outgoing, error: ClientError | None) -> None:
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

    def _not_stored(self, lane: Lane, batch: Outgoing, error: ClientError) -> None:
        batch.attempts += 1
        batch.maybe_written = batch.maybe_written or error.unknown_outcome
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

    def _fail(self, batch: Outgoing, error: ClientError) -> None:
        failure = error
        if not isinstance(error, ProducerFenced):  # That is the whole producer's fate.
            verdict = DeliveryUnknown if batch.maybe_written else DeliveryFailed
            failure = verdict(f"partition {batch.partition}", error)
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
