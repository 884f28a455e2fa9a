"""Sends records to topics, and reports the delivery of each record.

    async with Producer(client) as producer:
        delivery = await producer.send("orders", b"value", key=b"key")

Rule 1: `send` never waits. It returns a future at once, even if the topic's metadata is not known yet. If the buffer is
        full, it raises `BufferFull`; `room` waits until there is space.
Rule 2: every future completes: with a `Delivery`, with `DeliveryFailed` (the record is not in the log and never will
        be), or with `DeliveryUnknown` (no response came, so the record may be in the log).
Rule 3: a retried batch keeps its place in the order. With `idempotent` it is stored only once.
Rule 4: with a `transactional_id`, records are accepted only inside a transaction. A record that is not delivered fails
        the transaction.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from ottla.client.client import RETRY, Client
from ottla.client.core.accumulator import Accumulator, Batch, Bytes, Draft, Headers, checked_text
from ottla.client.core.errors import BufferFull, DeliveryFailed, Misused, RecordTooLarge
from ottla.client.core.identities import Identities
from ottla.client.core.names import TopicPartition
from ottla.client.core.partitioner import StickyPartition, partition_of_key
from ottla.client.leaders import find_leaders, known_leader
from ottla.client.produce_requests import ALL, BatchAnswer, new_producer_id, send_batches
from ottla.client.transactions import Transactions
from ottla.kernel import HEADER_SIZE, Codec
from ottla.observe.trace import warn
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.api.produce import PartitionProduceResponse
from ottla.wire.errors import Error

RECORD_BYTES_MAX: Final = 1_048_588
"""Kafka's default of message.max.bytes. `send` refuses a larger record at once, with both sizes in the error."""

_FOREIGN: Final = frozenset(
    {Error.UNKNOWN_PRODUCER_ID, Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH}
)
"""The broker does not know this producer id, or expects another sequence: a new producer id may help."""


class Delivery(NamedTuple):
    """Where a record was stored. The offset is -1 if it is unknown: with acks=0, or if an earlier attempt stored it."""

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
        """`acks` is 0, 1 or ALL. By default, `idempotent` is true with ALL and false otherwise.

        With a `transactional_id` all records are sent in transactions; see `transaction`.

        A record must be delivered within `delivery_timeout_ms` after `send`, including the look-up of its topic and
        all attempts. The default is the client's `api_timeout_ms`.
        """
        if acks not in (0, 1, ALL):
            raise Misused(f"acks is {acks}", "Use 0 (no response), 1 (the leader) or -1 (all in-sync replicas).")
        if idempotent and acks != ALL:
            raise Misused(f"the producer is idempotent and has acks={acks}", "Use acks=-1 (all), or idempotent=False.")
        if transactional_id is not None and (idempotent is False or acks != ALL or not transactional_id):
            raise Misused(
                f"transactional_id is {transactional_id!r}, acks={acks}, idempotent={idempotent}",
                "Transactions need an id that is not empty, acks=-1 (all), and must be idempotent.",
            )
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
        self._settled = asyncio.Event()  # Set whenever records were delivered, failed or scheduled for a retry.
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
        """Accept a record for sending. If BufferFull, RecordTooLarge or Misused is raised, it was not accepted."""
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
            # `size_max` is an upper bound. The exact size is computed only for a record that may be too large.
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
        """The transactions of this producer, for a caller that begins and ends each one itself."""
        if self._transactions is None:
            raise Misused("the producer has no transactional_id", "Give it a transactional_id to use transactions.")
        return self._transactions

    def transaction(self) -> AbstractAsyncContextManager[Transactions]:
        """A block that is one transaction: it commits at the end of the block, and aborts on an exception."""
        return self.transactions.transaction()

    @property
    def has_room(self) -> bool:
        """Whether the buffer has space for a record of the largest size, so that `send` cannot raise BufferFull."""
        return self._has_room(self._record_bytes_max)

    async def room(self) -> None:
        """Wait until the buffer has space for a record of the largest size."""
        while not self.has_room:
            self._settled.clear()
            await self._settled.wait()

    async def flush(self) -> None:
        """Send all accepted records without waiting for `linger_ms`. Returns when each is delivered or has failed."""
        while not self._records.empty or self._unrouted:
            self._records.flush(self._clock.monotonic_ms())
            self._wake.set()
            self._settled.clear()
            await self._settled.wait()

    async def discard(self, reason: ClientError) -> None:
        """Fail all records that are not sent yet, and wait for the batches in flight."""
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
        """Close the producer. Without `flush` the undelivered records fail. An open transaction is aborted."""
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
            error = await find_leaders(self._client, topics)
            if error is not None:
                warn("client.leader_not_found", topics=topics, reason=error)
        finally:
            for topic in topics:
                self._finding.pop(topic, None)
            self._wake.set()

    # -- Sending

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now = self._clock.monotonic_ms()
            for batch in self._records.expired(now):
                self._failed(batch, Misused("its time is over", "Raise delivery_timeout_ms if brokers need longer."))
            requests, leaderless = self._records.take(now, partial(known_leader, self._client), self._request_bytes)
            for node, groups in requests.items():
                for batches in groups:
                    self._spawn(self._deliver(node, batches))
            lost = [topic for topic in leaderless if topic not in self._finding]
            if lost:
                self._finding.update(dict.fromkeys(lost))
                self._spawn(self._find_leaders(lost))
            await self._sleep_until(self._records.next_deadline(self._finding))

    async def _sleep_until(self, deadline_ms: int | None) -> None:
        """Sleep until `_wake` is set or the deadline has passed; None means no deadline."""
        wait_s = None if deadline_ms is None else max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _deliver(self, node: int, batches: list[Batch]) -> None:
        try:
            await self._identify(batches)
        except ClientError as error:
            for batch in batches:
                self._not_appended(batch, error)
            return
        answers = await send_batches(
            self._client,
            node,
            batches,
            timeout_ms=lambda: self._request_timeout_ms(batches),
            acks=self._acks,
            codec=self._codec,
            level=self._level,
            transactions=self._transactions,
        )
        for answer in answers:
            self._answered(answer)

    def _request_timeout_ms(self, batches: list[Batch]) -> int:
        left_ms = self._records.left_ms(batches, self._clock.monotonic_ms())
        return min(self._client.request_timeout_ms, left_ms)

    async def _identify(self, batches: list[Batch]) -> None:
        if self._identities is None:
            return
        for batch in batches:
            while not self._identities.stamp(batch):
                async with self._identifying:
                    if self._identities.current is None:
                        self._identities.current = await new_producer_id(self._client)

    # -- Results of batches

    def _answered(self, answer: BatchAnswer) -> None:
        batch, error = answer.batch, answer.error
        if error is None:
            self._acknowledged(batch, answer.response)
        elif (refused := answer.refused_records) and not batch.maybe_written:
            # The broker stored nothing and names the invalid records. The others are sent again without them.
            batch.attempts += 1
            gone = self._records.without(batch, refused)
            self._fail(gone, DeliveryFailed(f"partition {batch.partition}", error))
            self._moved_on()
        else:
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
        batch.attempt_failed(error)
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
        """Fail the futures of a batch that was removed from the accumulator."""
        if batch.maybe_written:
            self._renew(batch.partition)
        self._fail(batch.drafts, batch.delivery_error(error))
        self._moved_on()

    def _renew(self, partition: TopicPartition) -> bool:
        """Give the partition another producer id. Returns False if it cannot have one: a transaction has only one."""
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
                    draft.token.exception()  # The commit raises it, so asyncio need not warn of an unread exception.

    def _moved_on(self) -> None:
        self._wake.set()
        self._settled.set()

    def _stopped(self, task: "asyncio.Task[None]") -> None:
        """If a task of the producer ended by a defect, close the producer and fail all futures, so that none waits."""
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._closed = True
            self._drop(ClientError(f"the producer failed: {defect!r}"))
            self._moved_on()
            raise defect

    def _drop(self, error: ClientError) -> None:
        for batch in self._records.give_up():
            # A batch in flight may still be stored.
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
