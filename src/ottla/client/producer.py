"""A producer: records in, deliveries out.

    async with Producer(client) as producer:
        delivery = await producer.send("orders", b"value", key=b"key")

Rule 1: `send` never waits. It returns a future at once, also for a topic nobody has asked about yet; when the buffer is
        full it raises `BufferFull`, and `room` waits until it is not.
Rule 2: every future ends: with a `Delivery`, with `DeliveryFailed` (the record is not in the log and never will be), or
        with `DeliveryUnknown` (no answer came).
Rule 3: what is retried keeps its order and, with `idempotent`, is stored once.
Rule 4: with a `transactional_id` records are taken in a transaction only, and one that fails takes it along.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from ottla.client.client import RETRY, Client
from ottla.client.core.accumulator import Accumulator, Batch, Bytes, Draft, Headers, checked_text
from ottla.client.core.addresses import Address
from ottla.client.core.errors import (
    BufferFull,
    ClientError,
    Declined,
    DeliveryFailed,
    DeliveryUnknown,
    Misused,
    RecordTooLarge,
    error_of,
)
from ottla.client.core.identities import Identities
from ottla.client.core.names import TopicPartition
from ottla.client.core.partitioner import StickyPartition, partition_of_key
from ottla.client.produce_requests import answers_by_partition, produce_request
from ottla.client.transactions import Transactions
from ottla.kernel import HEADER_SIZE, Codec
from ottla.observe.trace import warn
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.api.produce import PartitionProduceResponse, ProduceResponse
from ottla.wire.errors import Error
from ottla.wire.types import NO_UUID

ALL: Final = -1
RECORD_BYTES_MAX: Final = 1_048_588
"""Kafka's default of message.max.bytes, so that what is refused is refused here, at once, with both numbers."""

_WITH_NAMES: Final = 12  # Last version of Produce that names topics; later ones carry their ids.
_FOREIGN: Final = frozenset(
    {Error.UNKNOWN_PRODUCER_ID, Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH}
)
"""The broker does not know this producer, or not at this sequence: a new identity helps."""


class Delivery(NamedTuple):
    """Where a record is; the offset is -1 if the broker was not asked (acks=0) or had stored it before."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Unrouted(NamedTuple):
    """A record whose topic is not known yet."""

    taken_ms: int
    partition: int | None
    draft: Draft


class Producer:
    def __init__(
        self,
        client: Client,
        *,
        acks: int = ALL,
        idempotent: bool | None = None,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        batch_bytes: int = 65_536,
        linger_ms: int = 5,
        delivery_timeout_ms: int | None = None,
        buffer_bytes: int = 32 * 1024 * 1024,
        request_bytes: int = 1_048_576,
        record_bytes_max: int = RECORD_BYTES_MAX,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
    ) -> None:
        """`acks` is 0, 1 or ALL; `idempotent` is on with ALL unless said otherwise.

        With a `transactional_id` everything is sent in transactions; see `transaction`.

        From `send` on a record has `delivery_timeout_ms` to be delivered: finding its topic and all attempts
        included. The default is the client's `api_timeout_ms`.
        """
        if acks not in (0, 1, ALL):
            raise Misused(f"acks is {acks}", "0 is no answer, 1 the leader, -1 every in-sync replica.")
        if idempotent and acks != ALL:
            raise Misused(f"an idempotent producer with acks={acks}", "It needs acks=-1 (all).")
        if transactional_id is not None and (idempotent is False or acks != ALL or not transactional_id):
            raise Misused("transactions that are not idempotent", "They need a transactional_id and acks=-1 (all).")
        self._client = client
        self._clock = client.ports.clock
        self._acks = acks
        self._codec = codec
        self._level = level
        self._batch_bytes = batch_bytes
        self._delivery_timeout_ms = client.api_timeout_ms if delivery_timeout_ms is None else delivery_timeout_ms
        self._buffer_bytes = buffer_bytes
        self._request_bytes = request_bytes
        self._record_bytes_max = record_bytes_max
        self._identities: Identities | None = None
        self._transactions: Transactions | None = None
        if idempotent or (idempotent is None and acks == ALL):
            self._identities = Identities(transactional=transactional_id is not None)
            if transactional_id is not None:
                self._transactions = Transactions(
                    client, self, self._identities, transactional_id, transaction_timeout_ms
                )
        self._identifying = asyncio.Lock()
        self._records = Accumulator(
            batch_bytes=batch_bytes, linger_ms=linger_ms, delivery_timeout_ms=self._delivery_timeout_ms
        )
        self._sticky: dict[str, StickyPartition] = {}
        self._unrouted: dict[str, list[Unrouted]] = {}
        self._unrouted_bytes = 0
        self._finding: dict[str, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()  # Pulses whenever records leave.
        self._runner: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        if self._transactions is not None:
            await self._transactions.init()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close(flush=kind is None)

    def send(
        self,
        topic: str,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> "asyncio.Future[Delivery]":
        """Take a record. Raises BufferFull, RecordTooLarge or Misused, and then has not taken it."""
        if self._closed:
            raise Misused("the producer is closed")
        if self._transactions is not None:
            self._transactions.check_open()
        if partition is not None and not isinstance(partition, int):
            raise Misused(f"partition is {type(partition).__name__} {partition!r:.60}", "Give its number as int.")
        delivered: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        draft = Draft.of(self._clock.wall_ms() if timestamp is None else timestamp, key, value, headers, delivered)
        size = draft.size_max
        if size + HEADER_SIZE > self._record_bytes_max:
            # The bound is generous; only a record that may be too large is worth the exact answer.
            size = len(Batch(TopicPartition(topic, -1), 0, [draft]).build(Codec.NONE, None))
            if size > self._record_bytes_max:
                raise RecordTooLarge(f"topic {topic}", size, self._record_bytes_max, "record_bytes_max")
        if not self._has_room(size):
            raise BufferFull(self._buffer_bytes)
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
            self._runner.add_done_callback(self._stopped)
        now_ms = self._clock.monotonic_ms()
        if topic in self._unrouted or topic not in self._client.cluster.topics:
            self._await_topic(checked_text("topic", topic), Unrouted(now_ms, partition, draft))
        else:
            self._route(topic, partition, draft, now_ms)
        return delivered

    @property
    def transactions(self) -> Transactions:
        """To begin and end transactions one by one."""
        if self._transactions is None:
            raise Misused("a producer without transactions", "Give it a transactional_id.")
        return self._transactions

    def transaction(self) -> AbstractAsyncContextManager[Transactions]:
        """What is sent in this block counts when it is left, or never."""
        return self.transactions.transaction()

    @property
    def has_room(self) -> bool:
        """Whether the buffer takes any record; false is early enough for `send` not to raise."""
        return self._has_room(self._record_bytes_max)

    async def room(self) -> None:
        """Wait until the buffer takes any record again."""
        while not self.has_room:
            self._settled.clear()
            await self._settled.wait()

    async def flush(self) -> None:
        """Send all that was taken, without lingering, and wait until nothing is left."""
        while not self._records.empty or self._unrouted:
            self._records.flush(self._clock.monotonic_ms())
            self._wake.set()
            self._settled.clear()
            await self._settled.wait()

    async def discard(self, reason: ClientError) -> None:
        """Fail all that was not sent, and wait until nothing is under way."""
        while True:
            for batch in self._records.give_up_waiting():
                self._failed(batch, reason)
            for topic, waiting in self._unrouted.items():
                self._unrouted_bytes -= sum(record.draft.size_max for record in waiting)
                self._fail([record.draft for record in waiting], DeliveryFailed(f"topic {topic}", reason))
                waiting.clear()
            if self._records.empty:
                return
            self._settled.clear()
            await self._settled.wait()

    async def close(self, *, flush: bool = True) -> None:
        """End; without `flush` what was not delivered fails. A transaction that is open is aborted."""
        if self._transactions is not None:
            await self._transactions.close()
        if flush and self._runner is not None and not self._runner.done():
            await self.flush()
        self._closed = True
        running = [*([self._runner] if self._runner else []), *self._tasks]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._drop(Misused("the producer was closed"))

    def _has_room(self, size: int) -> bool:
        held = self._records.held_bytes + self._unrouted_bytes
        return held == 0 or held + size <= self._buffer_bytes

    # -- Finding the partition

    def _route(self, topic: str, partition: int | None, draft: Draft, taken_ms: int) -> None:
        known = self._client.cluster.topics[topic]
        if partition is None:
            if draft.key is not None:
                partition = partition_of_key(draft.key, len(known.partitions))
            else:
                sticky = self._sticky.get(topic)
                if sticky is None:
                    sticky = self._sticky[topic] = StickyPartition(self._batch_bytes, self._client.ports.random)
                partition = sticky.choose(known.led or range(len(known.partitions)), draft.size_max)
        elif not 0 <= partition < len(known.partitions):
            count = len(known.partitions)
            error = Misused(f"there is no partition {partition}", f"The topic has {count}, counted from 0.")
            self._fail([draft], DeliveryFailed(f"topic {topic}", error))
            return
        if self._records.add(TopicPartition(topic, partition), draft, taken_ms):
            self._wake.set()

    def _await_topic(self, topic: str, record: Unrouted) -> None:
        self._unrouted_bytes += record.draft.size_max
        if topic in self._unrouted:
            self._unrouted[topic].append(record)
        else:
            self._unrouted[topic] = [record]
            self._spawn(self._find_topic(topic))

    async def _find_topic(self, topic: str) -> None:
        failure: ClientError | None = None
        try:
            await self._client.metadata.topic(topic, timeout_ms=self._delivery_timeout_ms, create=True)
        except ClientError as error:
            failure = error
        waiting = self._unrouted.pop(topic)
        for record in waiting:
            self._unrouted_bytes -= record.draft.size_max
            if failure is None:
                self._route(topic, record.partition, record.draft, record.taken_ms)
            else:
                self._fail([record.draft], DeliveryFailed(f"topic {topic}", failure))
        self._settled.set()

    async def _find_leaders(self, topics: list[str]) -> None:
        try:
            for topic in topics:
                self._client.metadata.stale(topic)
            await self._client.metadata.refresh(topics)
            if not all(map(self._all_led, topics)):
                await asyncio.sleep(RETRY.wait_ms(1, self._client.ports.random) / 1000)  # Elections take a moment.
        except ClientError as error:
            warn("client.leader_not_found", topics=topics, reason=error)
            await asyncio.sleep(RETRY.wait_ms(2, self._client.ports.random) / 1000)
        finally:
            for topic in topics:
                self._finding.pop(topic, None)
            self._wake.set()

    def _all_led(self, topic: str) -> bool:
        known = self._client.cluster.topics.get(topic)
        return known is not None and len(known.led) == len(known.partitions)

    def _leader(self, partition: TopicPartition) -> int | None:
        leader = self._client.cluster.leader(partition)
        return leader if leader >= 0 and self._client.metadata.is_fresh(partition.topic) else None

    # -- Sending

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now = self._clock.monotonic_ms()
            for batch in self._records.expired(now):
                self._failed(batch, Misused("its time is over", "Raise delivery_timeout_ms if brokers need longer."))
            requests, leaderless = self._records.take(now, self._leader, self._request_bytes)
            for node, groups in requests.items():
                for batches in groups:
                    self._spawn(self._deliver(node, batches))
            lost = [topic for topic in leaderless if topic not in self._finding]
            if lost:
                self._finding.update(dict.fromkeys(lost))
                self._spawn(self._find_leaders(lost))
            await self._sleep_until(self._records.next_deadline(self._finding))

    async def _sleep_until(self, deadline_ms: int | None) -> None:
        """Until woken or the deadline."""
        wait_s = None if deadline_ms is None else max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _deliver(self, node: int, batches: list[Batch]) -> None:
        try:
            await self._identify(batches)
            request = produce_request(self._client, batches, acks=self._acks, codec=self._codec, level=self._level)
            at_most = _WITH_NAMES if any(topic.topic_id == NO_UUID for topic in request.topic_data) else None
            if self._transactions is not None:
                await self._transactions.admit(batches)
                request.transactional_id = self._transactions.transactional_id
                at_most = self._transactions.produce_version_max or at_most
            connection = await self._client.brokers.node(node)
            if self._acks == 0:
                await connection.tell(request, at_most=at_most)
                for batch in batches:
                    self._acknowledged(batch, None)
                return
            timeout_ms = min(
                self._client.request_timeout_ms, self._records.left_ms(batches, self._clock.monotonic_ms())
            )
            answer: ProduceResponse = await connection.call(request, timeout_ms=timeout_ms, at_most=at_most)
        except ClientError as error:
            for batch in batches:
                self._not_appended(batch, error)
            return
        answers = answers_by_partition(answer, self._client.cluster)
        for batch in batches:
            self._answered(batch, answers.get(batch.partition), connection.address)

    async def _identify(self, batches: list[Batch]) -> None:
        if self._identities is None:
            return
        for batch in batches:
            while not self._identities.stamp(batch):
                async with self._identifying:
                    if self._identities.current is None:
                        self._identities.current = await self._new_producer_id()

    async def _new_producer_id(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        connection, answer = await self._client.call_any(request)
        assert isinstance(answer, InitProducerIdResponse)
        error = error_of(answer.error_code)
        if error is not Error.NONE:
            raise Declined(error, broker=connection.address, subject="producer id")
        return answer.producer_id, answer.producer_epoch

    # -- The fate of batches

    def _answered(self, batch: Batch, told: PartitionProduceResponse | None, broker: Address) -> None:
        code = Error.NETWORK_EXCEPTION if told is None else error_of(told.error_code)
        if code in (Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER):
            self._acknowledged(batch, told)
            return
        refused = {} if told is None else {one.batch_index: one.batch_index_error_message for one in told.record_errors}
        text = next(iter(refused.values())) if refused else told.error_message if told else None
        error = Declined(code, broker=broker, subject=f"partition {batch.partition}", text=text)
        if refused and not batch.maybe_written:
            # The broker took nothing, and says which records are to blame: the others need not suffer.
            batch.attempts += 1
            gone = self._records.without(batch, refused)
            self._fail(gone, DeliveryFailed(f"partition {batch.partition}", error))
            self._moved_on()
            return
        self._not_appended(batch, error)

    def _acknowledged(self, batch: Batch, told: PartitionProduceResponse | None) -> None:
        if self._identities is not None:
            self._identities.acknowledged(batch)
        self._records.done(batch)
        base = -1 if told is None else told.base_offset
        append_time = -1 if told is None else told.log_append_time_ms
        topic, partition = batch.partition
        for number, draft in enumerate(batch.drafts):
            if not draft.token.done():
                timestamp = draft.timestamp if append_time < 0 else append_time
                draft.token.set_result(Delivery(topic, partition, base + number if base >= 0 else -1, timestamp))
        self._moved_on()

    def _not_appended(self, batch: Batch, error: ClientError) -> None:
        batch.attempts += 1
        batch.maybe_written = batch.maybe_written or error.unknown_outcome
        self._client.metadata.stale(batch.partition.topic)
        code = error.error if isinstance(error, Declined) else None
        retriable = error.retriable
        if code is Error.MESSAGE_TOO_LARGE and len(batch.drafts) > 1 and not batch.maybe_written:
            size = len(batch.data)
            warn("client.batch_split", partition=str(batch.partition), bytes=size, lower="batch_bytes", reason=error)
            self._records.split(batch)
            self._moved_on()
            return
        if code in _FOREIGN and not batch.maybe_written and self._renew(batch.partition):
            batch.stamp, batch.data = None, b""
            retriable = True
        at_ms = self._clock.monotonic_ms() + RETRY.wait_ms(batch.attempts, self._client.ports.random)
        if retriable and self._records.may_retry(batch, at_ms):
            self._records.again(batch, at_ms)
            self._moved_on()
            return
        self._records.done(batch)
        self._failed(batch, error)

    def _failed(self, batch: Batch, error: ClientError) -> None:
        """The batch has left; tell those who wait."""
        if batch.maybe_written:
            self._renew(batch.partition)
        verdict: Callable[[str, ClientError], ClientError] = DeliveryUnknown if batch.maybe_written else DeliveryFailed
        self._fail(batch.drafts, verdict(f"partition {batch.partition}", error))
        self._moved_on()

    def _renew(self, partition: TopicPartition) -> bool:
        """Whether the partition goes on under another producer id; a transaction has only one."""
        if self._identities is None or self._transactions is not None:
            return False
        self._identities.renew(partition)
        return True

    def _fail(self, drafts: list[Draft], error: ClientError) -> None:
        if self._transactions is not None and drafts:
            self._transactions.lost(error)
        for draft in drafts:
            if not draft.token.done():
                draft.token.set_exception(error)
                if self._transactions is not None:
                    draft.token.exception()  # The transaction's end tells it: asyncio need not warn of it.

    def _moved_on(self) -> None:
        self._wake.set()
        self._settled.set()

    def _stopped(self, task: "asyncio.Task[None]") -> None:
        """A defect in here ends the producer and every future: none may be left pending."""
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._closed = True
            self._drop(ClientError(f"the producer failed: {defect!r}"))
            self._moved_on()
            raise defect

    def _drop(self, error: ClientError) -> None:
        for batch in self._records.give_up():
            # What is under way may arrive all the same.
            batch.maybe_written = batch.maybe_written or bool(batch.data)
            self._failed(batch, error)
        for topic, waiting in self._unrouted.items():
            self._fail([record.draft for record in waiting], DeliveryFailed(f"topic {topic}", error))
        self._unrouted.clear()
        self._unrouted_bytes = 0

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        task.add_done_callback(self._stopped)
