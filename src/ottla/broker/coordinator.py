"""The runtime of coordinators: decide, replay, append, wait until committed, answer.

A coordinator owns an internal topic. Each partition of it that this broker leads is a shard: a state machine of the
core, loaded from the partition's log. What the shard decides is replayed into it at once, appended to the log, and
answered when the log is committed that far.

Rule 1: a shard belongs to one leader epoch. When that ends, or the log cannot be written, the shard is dropped, whoever
        waits is told NOT_COORDINATOR, and what is led here is loaded anew. So nothing is ever acknowledged by an offset
        alone that another leader may have given to something else (KAFKA-20634).
Rule 2: decisions of one turn of the loop share a batch. A decision is never split over two, but for what `tick` found.
Rule 3: an answer waits for everything that its decision may have seen, also when it wrote nothing itself.
Rule 4: what is written in a transaction is appended by itself and checked by the log, because a newer producer may have
        fenced the one that asks.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ottla.broker.partition import Partition
from ottla.config import MAX_MESSAGE_BYTES
from ottla.core.coordination import (
    PARKED,
    BadRecord,
    CoordinatorRecord,
    Decision,
    Origin,
    ProducerStamp,
    RecordTypes,
    Shard,
    Token,
    encode_record,
    partition_of,
)
from ottla.core.log import producers
from ottla.kernel import (
    BatchBuilder,
    BatchHeader,
    Codec,
    ControlType,
    CorruptBatch,
    Record,
    build_batch,
    build_end_txn_marker,
    read_end_txn_marker,
    read_records,
    scan,
)
from ottla.observe.trace import trace, warn
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node

S = TypeVar("S", bound=Shard)
R = TypeVar("R")

Answer = Callable[[Refused], Any]
"""What a refusal looks like in the words of a response."""

_LOAD_SLICE_RECORDS = 500  # Between two turns of the loop: a few milliseconds.
_RECORD_OVERHEAD_MAX = 64  # Varints around a key and a value, generously.
_CLOCK_STEP_MS = 1_000

_MEANING = {
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE,
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
    Error.MESSAGE_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    Error.RECORD_LIST_TOO_LARGE: Error.UNKNOWN_SERVER_ERROR,
    Error.INVALID_FETCH_SIZE: Error.UNKNOWN_SERVER_ERROR,
}
"""What a failure of the log means to a client of the coordinator, as Kafka has it."""


class _Waiting:
    """An answer, or a parked request."""

    __slots__ = ("answer", "done", "end_offset", "reply", "since_ms", "wake")

    def __init__(self, end_offset: int, reply: Any, wake: Sequence[tuple[Token, object]], since_ms: int) -> None:
        self.end_offset = end_offset
        self.reply = reply
        self.wake = wake
        self.since_ms = since_ms
        self.done: asyncio.Future[Any] | None = None
        self.answer: Answer | None = None

    def tell(self) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(self.reply)

    def refuse(self, refusal: Refused) -> None:
        done, self.done = self.done, None
        if done is None or done.done():
            return
        if self.answer is None:
            done.set_exception(refusal)
        else:
            done.set_result(self.answer(refusal))


class _Context(Generic[S]):
    """A shard, the partition it lives in, and who waits for it."""

    def __init__(self, index: int, partition: Partition, shard: S, on_commit: Callable[["_Context[S]"], None]) -> None:
        self.index = index
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.shard = shard
        self.is_active = False
        self.failure: str | None = None
        self.end_offset = partition.log.log.end_offset
        """Of what was decided; what is in `queue` will stand below it."""
        self.queue: list[tuple[int, bytes, bytes | None]] = []
        self.queue_bytes = 0
        self.waiting: deque[_Waiting] = deque()
        self.parked: dict[Token, _Waiting] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at_ms = 0
        self.patience: asyncio.TimerHandle | None = None
        self._on_commit = on_commit

    @property
    def is_settled(self) -> bool:
        """Everything decided so far is committed."""
        return self.partition.high_watermark >= self.end_offset

    def grown(self, _size: int) -> None:
        self._on_commit(self)

    def wake(self) -> None:
        self._on_commit(self)


class Coordinator(Generic[S]):
    def __init__(
        self,
        node: "Node",
        topic: str,
        types: RecordTypes,
        new_shard: Callable[[int, int], S],
        *,
        load_bytes: int,
        commit_timeout_ms: int,
        codec: Codec = Codec.NONE,
    ) -> None:
        """`new_shard` makes an empty shard for a partition in a leader epoch."""
        self.topic = topic
        self._node = node
        self._types = types
        self._new_shard = new_shard
        self._load_bytes = load_bytes
        self._commit_timeout_ms = commit_timeout_ms
        self._codec = codec
        self._contexts: dict[int, _Context[S]] = {}
        self._tokens = count(1)
        self._clock_offset_ms = node.clock.wall_ms() - node.clock.monotonic_ms()

    # Who coordinates what.

    def partition_of(self, key: str) -> int:
        """Refused while the internal topic does not exist."""
        topic = self._node.metadata.image.topics.get(self.topic)
        if topic is None:
            raise Refused(Error.COORDINATOR_NOT_AVAILABLE, f"topic {self.topic} does not exist yet")
        return partition_of(key, len(topic.partitions))

    def align(self) -> None:
        """Bring the shards in line with what this broker leads: after every change of the metadata."""
        led = dict(self._led())
        for index, context in list(self._contexts.items()):
            partition = led.get(index)
            if partition is not context.partition or partition.leader_epoch != context.leader_epoch:
                self._drop(context, f"this broker no longer leads {self.topic}-{index}")
        for index, partition in led.items():
            if index not in self._contexts:
                self._take_over(index, partition)

    def _led(self) -> Iterator[tuple[int, Partition]]:
        topic = self._node.metadata.image.topics.get(self.topic)
        for index, state in topic.partitions.items() if topic is not None else ():
            partition = self._node.partitions.find(self.topic, index)
            if (
                partition is not None
                and state.leader == self._node.node_id
                and partition.leader_epoch == state.leader_epoch
            ):
                yield index, partition

    def close(self) -> None:
        for context in list(self._contexts.values()):
            self._drop(context, "the node is stopping")

    # Deciding.

    async def decide(
        self,
        key: str,
        handle: Callable[[S, int, Token], Decision[R]],
        *,
        producer: ProducerStamp | None = None,
        refused: Callable[[Refused], R] | None = None,
    ) -> R:
        """Have something decided; the reply once it is committed. `refused` makes a response of a refusal."""
        result = self.submit(key, handle, producer=producer, refused=refused)
        return await result if isinstance(result, asyncio.Future) else result

    def submit(
        self,
        key: str,
        handle: Callable[[S, int, Token], Decision[R]],
        *,
        producer: ProducerStamp | None = None,
        refused: Callable[[Refused], R] | None = None,
    ) -> "R | asyncio.Future[R]":
        """As `decide`; the reply itself where nothing is to be waited for."""
        try:
            context = self._context(self.partition_of(key))
            self._check_in_sync(context)
            now_ms, token = self._now_ms(), Token(next(self._tokens))
            decision = handle(context.shard, now_ms, token)
            if decision.records:
                if producer is None:
                    self._enqueue(context, decision.records, now_ms)
                else:
                    self._append_in_transaction(context, decision.records, producer, now_ms)
        except Refused as refusal:
            if refused is None:
                raise
            return refused(refusal)
        return self._answer(context, decision, token, refused, now_ms)

    def read(self, key: str, look: Callable[[S, int], R]) -> "R | asyncio.Future[R]":
        """What a shard knows, once that is committed."""
        context = self._context(self.partition_of(key))
        now_ms = self._now_ms()
        reply: R = look(context.shard, now_ms)
        return self._answer(context, Decision(reply), Token(0), None, now_ms)

    async def read_all(self, look: Callable[[S, int], R]) -> list[R]:
        """What every shard here knows. Refused while one is being loaded."""
        replies: list[R] = []
        for index in sorted(self._contexts):
            if self._contexts[index].failure is not None:
                continue
            context, now_ms = self._context(index), self._now_ms()
            reply: R | asyncio.Future[R] = self._answer(
                context, Decision(look(context.shard, now_ms)), Token(0), None, now_ms
            )
            replies.append(await reply if isinstance(reply, asyncio.Future) else reply)
        return replies

    def apply_all(self, handle: Callable[[S, int], Decision[None]]) -> None:
        """Have every shard here decide something that nobody waits for."""
        for context in list(self._contexts.values()):
            if context.is_active:
                now_ms = self._now_ms()
                self._apply(context, handle(context.shard, now_ms), now_ms)

    async def end_transaction(
        self,
        index: int,
        producer: ProducerStamp,
        *,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int = 0,
    ) -> None:
        """Write the marker of a transaction; returns when it is committed and what it decides can be seen."""
        context, now_ms = self._context(index), self._now_ms()
        self._flush(context)
        self._context(index)  # Refused if the flush has just failed.
        marker = build_end_txn_marker(
            ControlType.COMMIT if committed else ControlType.ABORT,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        self._append_checked(context, marker, transaction_version)
        context.shard.replay_marker(producer.producer_id, producer.producer_epoch, committed=committed)
        done = self._answer(context, Decision(None), Token(0), None, now_ms)
        if done is not None:
            await done

    def _context(self, index: int) -> _Context[S]:
        context = self._contexts.get(index)
        if context is None or context.failure is not None:
            why = "another broker leads it" if context is None else f"its log could not be read: {context.failure}"
            raise Refused(Error.NOT_COORDINATOR, f"{self.topic}-{index} is not coordinated here: {why}")
        if not context.is_active:
            raise Refused(Error.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic}-{index} is being loaded: ask again")
        return context

    def _check_in_sync(self, context: _Context[S]) -> None:
        try:
            context.partition.check_in_sync()
        except Refused as refusal:
            raise _translated(refusal) from None

    def _now_ms(self) -> int:
        """The wall clock. When it was set, deadlines move with it: a session is a span of time, not a date."""
        clock = self._node.clock
        wall_ms = clock.wall_ms()
        offset_ms = wall_ms - clock.monotonic_ms()
        step_ms = offset_ms - self._clock_offset_ms
        if abs(step_ms) >= _CLOCK_STEP_MS:
            self._clock_offset_ms = offset_ms
            warn("clock.set", topic=self.topic, by_ms=step_ms)
            for context in self._contexts.values():
                context.shard.clock_set(step_ms)
        return wall_ms

    # Answering.

    def _answer(
        self, context: _Context[S], decision: Decision[R], token: Token, refused: Answer | None, now_ms: int
    ) -> "R | asyncio.Future[R]":
        self._arm(context, now_ms)
        is_parked = decision.reply is PARKED
        if not decision.wake and not is_parked and context.is_settled:
            return decision.reply
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(context.end_offset, decision.reply, decision.wake, now_ms)
        if is_parked:
            asked = _Waiting(0, None, (), now_ms)
            asked.done, asked.answer = done, refused
            context.parked[token] = asked
        else:
            waiting.done, waiting.answer = done, refused
        if decision.wake or not is_parked:
            self._wait(context, waiting)
        return done

    def _wait(self, context: _Context[S], waiting: _Waiting) -> None:
        context.waiting.append(waiting)
        if context.is_settled:
            self._settle(context)
        elif context.patience is None:
            context.patience = asyncio.get_running_loop().call_later(
                self._commit_timeout_ms / 1000, self._lose_patience, context
            )

    def _settle(self, context: _Context[S]) -> None:
        """Answer whoever waits for what is committed now."""
        if context.partition.leader_epoch != context.leader_epoch:
            self.align()
            return
        committed, waiting = context.partition.high_watermark, context.waiting
        while waiting and waiting[0].end_offset <= committed:
            one = waiting.popleft()
            for token, reply in one.wake:
                parked = context.parked.pop(token, None)
                if parked is not None:
                    parked.reply = reply
                    parked.tell()
            one.tell()
        if not waiting and context.patience is not None:
            context.patience.cancel()
            context.patience = None

    def _lose_patience(self, context: _Context[S]) -> None:
        """`offsets.commit.timeout.ms`: who has waited that long is told so; what was written may still count."""
        context.patience = None
        now_ms, limit_ms = self._now_ms(), self._commit_timeout_ms
        left_ms = None
        for one in context.waiting:
            if one.done is None:
                continue
            left_ms = one.since_ms + limit_ms - now_ms
            if left_ms > 0:
                break
            one.refuse(_translated(Refused(Error.REQUEST_TIMED_OUT, f"not committed within {limit_ms} ms")))
        if left_ms is not None:
            context.patience = asyncio.get_running_loop().call_later(
                max(left_ms, 1) / 1000, self._lose_patience, context
            )

    # Writing.

    def _enqueue(
        self,
        context: _Context[S],
        records: Sequence[CoordinatorRecord],
        now_ms: int,
        *,
        atomic: bool = True,
    ) -> None:
        encoded = [encode_record(record) for record in records]
        limit = context.partition.log.log.config[MAX_MESSAGE_BYTES] - _RECORD_OVERHEAD_MAX
        sizes = [len(key) + len(value or b"") + _RECORD_OVERHEAD_MAX for key, value in encoded]
        size = sum(sizes)
        if atomic and size > limit:
            raise Refused(
                Error.UNKNOWN_SERVER_ERROR,
                f"{context.partition.name}: a decision of {size} bytes; max.message.bytes allows {limit}",
            )
        if context.queue_bytes + size > limit:
            self._flush(context)
        for (key, value), taken, record in zip(encoded, sizes, records, strict=True):
            if context.queue_bytes + taken > limit:
                self._flush(context)
            if not context.queue:
                asyncio.get_running_loop().call_soon(self._flush, context)
            context.queue.append((now_ms, key, value))
            context.queue_bytes += taken
            context.shard.replay(record, Origin(context.end_offset, now_ms))
            context.end_offset += 1

    def _flush(self, context: _Context[S]) -> None:
        """Append what was decided since the last time."""
        queue = context.queue
        if not queue or self._contexts.get(context.index) is not context:
            return
        base_offset = context.end_offset - len(queue)
        context.queue, context.queue_bytes = [], 0
        try:
            if context.partition.log.log.end_offset != base_offset:
                raise Refused(Error.NOT_COORDINATOR, f"someone else has written to {context.partition.name}")
            builder = BatchBuilder(base_offset)
            for timestamp, key, value in queue:
                builder.append(timestamp, key, value)
            context.partition.append_own(builder.build(codec=self._codec, leader_epoch=context.leader_epoch))
        except Refused as refusal:
            self._drop(context, refusal.text)
            self.align()
            return
        self._settle(context)

    def _append_in_transaction(
        self, context: _Context[S], records: Sequence[CoordinatorRecord], producer: ProducerStamp, now_ms: int
    ) -> None:
        self._flush(context)
        self._context(context.index)  # Refused if the flush has just failed.
        batch = build_batch(
            [Record(delta, now_ms, *encode_record(record)) for delta, record in enumerate(records)],
            codec=self._codec,
            transactional=True,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
        )
        first_offset = self._append_checked(context, batch)
        for offset, record in enumerate(records, first_offset):
            context.shard.replay(record, Origin(offset, now_ms, *producer))

    def _append_checked(self, context: _Context[S], batch: bytes, transaction_version: int = 0) -> int:
        try:
            appended = context.partition.append(
                memoryview(bytearray(batch)),
                acks=-1,
                origin=producers.Origin.COORDINATOR,
                transaction_version=transaction_version,
            )
        except Refused as refusal:
            if context.partition.log.directory.failure is not None:
                self._drop(context, refusal.text)
            raise _translated(refusal) from None
        context.end_offset = appended.last_offset + 1
        return appended.first_offset

    # What is due.

    def _arm(self, context: _Context[S], now_ms: int) -> None:
        at_ms = context.shard.next_deadline()
        if at_ms is None or (context.timer is not None and context.timer_at_ms <= at_ms):
            return  # One that fires early finds nothing to do and is set again.
        if context.timer is not None:
            context.timer.cancel()
        context.timer_at_ms = at_ms
        context.timer = asyncio.get_running_loop().call_later(max(at_ms - now_ms, 0) / 1000, self._tick, context)

    def _tick(self, context: _Context[S]) -> None:
        context.timer = None
        if self._contexts.get(context.index) is not context:
            return
        now_ms = self._now_ms()
        self._apply(context, context.shard.tick(now_ms), now_ms)

    def _apply(self, context: _Context[S], decision: Decision[None], now_ms: int) -> None:
        """A decision that nobody asked for."""
        self._enqueue(context, decision.records, now_ms, atomic=False)
        if decision.wake:
            self._wait(context, _Waiting(context.end_offset, None, decision.wake, now_ms))
        self._arm(context, now_ms)

    # Loading and letting go.

    def _take_over(self, index: int, partition: Partition) -> None:
        shard = self._new_shard(index, partition.leader_epoch)
        context = self._contexts[index] = _Context(index, partition, shard, self._settle)
        log = partition.log.log
        if log.log_start_offset == log.end_offset:
            self._activate(context)
        else:
            self._node.spawn(self._load(context))

    async def _load(self, context: _Context[S]) -> None:
        began_ms = self._node.clock.monotonic_ms()
        try:
            loaded = await self._replay_log(context)
        except (Refused, BadRecord, CorruptBatch) as error:
            context.failure = str(error)
            warn("coordinator.not_loaded", partition=context.partition.name, error=error)
            return
        if self._contexts.get(context.index) is context:
            took_ms = self._node.clock.monotonic_ms() - began_ms
            trace("coordinator.loaded", partition=context.partition.name, records=loaded, took_ms=took_ms)
            self._activate(context)

    async def _replay_log(self, context: _Context[S]) -> int:
        log = context.partition.log
        offset, end_offset = log.log.log_start_offset, context.end_offset
        loaded = since_rest = 0
        while offset < end_offset and self._contexts.get(context.index) is context:
            part = log.read(offset, self._load_bytes, end_offset)
            if not len(part):
                break  # Compaction left nothing at the end.
            data = part.read() if part.is_warm() else await self._node.store.disk.in_thread(part.read)
            scanned = scan(data)
            if not scanned.headers:
                raise CorruptBatch(f"offset {offset}: {scanned.fault}")
            view, position = memoryview(data), 0
            for header in scanned.headers:
                self._replay_batch(context.shard, view[position : position + header.size], header)
                position += header.size
                offset = header.next_offset
                loaded += header.count
                since_rest += header.count
                if since_rest >= _LOAD_SLICE_RECORDS:
                    since_rest = 0
                    await asyncio.sleep(0)
        return loaded

    def _replay_batch(self, shard: S, batch: memoryview, header: BatchHeader) -> None:
        if header.is_control:
            if header.is_transactional and header.count:
                marker = read_end_txn_marker(batch)
                committed = marker.control_type is ControlType.COMMIT
                shard.replay_marker(header.producer_id, header.producer_epoch, committed=committed)
            return
        producer = (header.producer_id, header.producer_epoch) if header.is_transactional else ()
        for record in read_records(batch, header):
            told = self._types.decode(record.key, record.value)
            if told is None:
                warn("coordinator.record_unknown", topic=self.topic, offset=record.offset, key=record.key)
            else:
                shard.replay(told, Origin(record.offset, record.timestamp, *producer))

    def _activate(self, context: _Context[S]) -> None:
        context.is_active = True
        context.partition.waiters[context] = None
        now_ms = self._now_ms()
        self._apply(context, context.shard.loaded(now_ms), now_ms)

    def _drop(self, context: _Context[S], why: str) -> None:
        self._contexts.pop(context.index, None)
        context.partition.waiters.pop(context, None)
        for timer in (context.timer, context.patience):
            if timer is not None:
                timer.cancel()
        trace("coordinator.dropped", partition=context.partition.name, epoch=context.leader_epoch, reason=why)
        refusal = Refused(Error.NOT_COORDINATOR, why)
        for one in (*context.waiting, *context.parked.values()):
            one.refuse(refusal)
        context.waiting.clear()
        context.parked.clear()


def _translated(refusal: Refused) -> Refused:
    meaning = _MEANING.get(refusal.error)
    return refusal if meaning is None else Refused(meaning, refusal.text)
