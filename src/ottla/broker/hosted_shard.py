"""A shard at work: what it decides is replayed, appended to its partition, and answered when it is committed.

Rule 1: decisions of one turn of the loop share a batch, unless this broker is alone in sync: then each is committed as
        it is written, and waiting for others would cost more than it saves. Where whoever answers can hold the answer
        back (`Holder`), it is ready before the records are written, and they are when the first answer is to leave:
        what arrives in one go is one batch. A decision is never split over two batches, but for what `tick`
        found.
Rule 2: an answer waits for everything that its decision may have seen, also when it wrote nothing itself.
Rule 3: what is written in a transaction is appended by itself and checked by the log, because a newer producer may have
        fenced the one that asks.
Rule 4: a shard whose partition cannot be written, or has another leader epoch, is over: whoever waits is refused, and
        nothing it decided since is acknowledged.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Generic, Protocol, TypeVar

from ottla.broker.partition import Partition
from ottla.config import FLUSH_MESSAGES, MAX_MESSAGE_BYTES
from ottla.core.coordination import (
    PARKED,
    CoordinatorRecord,
    Decision,
    Origin,
    ProducerStamp,
    RecordRun,
    Shard,
    Token,
    encode_record,
)
from ottla.core.log import producers
from ottla.kernel import BatchBuilder, Codec, Record, build_batch
from ottla.observe.trace import trace
from ottla.wire.errors import Error, Refused

S = TypeVar("S", bound=Shard)
R = TypeVar("R")

Answer = Callable[[Refused], Any]
"""What a refusal looks like in the words of a response."""

_RECORD_OVERHEAD_MAX = 64  # Varints around a key and a value, generously.

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


class Holder(Protocol):
    """A connection, whose answers leave some at a time."""

    def hold(self, hosted: "HostedShard[Any]", /) -> None:
        """Let no answer leave before `write_held`; if that fails, none that is ready may leave at all."""


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


class HostedShard(Generic[S]):
    def __init__(
        self,
        index: int,
        partition: Partition,
        shard: S,
        *,
        now_ms: Callable[[], int],
        on_end: Callable[["HostedShard[S]"], None],
        commit_timeout_ms: int,
        codec: Codec,
    ) -> None:
        self.index = index
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.shard = shard
        self.is_active = False
        """It was loaded, and answers."""
        self.is_over = False
        self.failure: str | None = None
        """Why it could not be loaded."""
        self._now_ms = now_ms
        self._on_end = on_end
        self._commit_timeout_ms = commit_timeout_ms
        self._codec = codec
        self._end_offset = partition.log.log.end_offset
        """Of what was decided; what is in the queue will stand below it."""
        self._queue: list[tuple[int, bytes, bytes | None, tuple[()]]] = []
        """Timestamp, key, value and headers."""
        self._queue_bytes = 0
        self._waiting: deque[_Waiting] = deque()
        self._parked: dict[Token, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._patience: asyncio.TimerHandle | None = None

    def activate(self) -> None:
        self.is_active = True
        self.partition.waiters[self] = None
        now_ms = self._now_ms()
        self.apply(self.shard.loaded(now_ms), now_ms)

    def end(self, why: str) -> None:
        """It is no longer this broker's, or cannot be kept."""
        trace("coordinator.ended", partition=self.partition.name, epoch=self.leader_epoch, reason=why)
        self.close(why)

    def close(self, why: str) -> None:
        """Whoever waits asks another."""
        self.is_over = True
        self.partition.waiters.pop(self, None)
        for timer in (self._timer, self._patience):
            if timer is not None:
                timer.cancel()
        refusal = Refused(Error.NOT_COORDINATOR, why)
        for one in (*self._waiting, *self._parked.values()):
            one.refuse(refusal)
        self._waiting.clear()
        self._parked.clear()

    def _fail(self, why: str) -> None:
        self.end(why)
        self._on_end(self)

    # As a watcher of its partition.

    def grown(self, _size: int, _stable_size: int) -> None:
        self._settle()

    def wake(self) -> None:
        self._settle()

    # Deciding.

    def check_in_sync(self) -> None:
        try:
            self.partition.check_in_sync()
        except Refused as refusal:
            raise _translated(refusal) from None

    def apply(self, decision: Decision[None], now_ms: int) -> None:
        """A decision that nobody asked for. Its records may be split over several batches."""
        try:
            self.write(decision.records, now_ms, atomic=False)
        except Refused:
            return  # Over: nobody waits any more.
        if decision.wake:
            self._wait(_Waiting(self._end_offset, None, decision.wake, now_ms))
        self._arm(now_ms)

    # Answering.

    @property
    def _is_settled(self) -> bool:
        """Everything decided so far is committed."""
        return self.partition.high_watermark >= self._end_offset

    def answer(
        self, decision: Decision[R], token: Token, refused: Answer | None, now_ms: int, holder: Holder | None = None
    ) -> "R | asyncio.Future[R]":
        """The reply, or what will have it when it is committed, or when some decision wakes the token."""
        self._arm(now_ms)
        is_parked = decision.reply is PARKED
        if not decision.wake and not is_parked:
            if self._is_settled:
                return decision.reply
            if holder is not None and self._queue and len(self.partition.isr) == 1:
                holder.hold(self)  # `write` has left it to the holder.
                return decision.reply
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(self._end_offset, decision.reply, decision.wake, now_ms)
        if is_parked:
            asked = _Waiting(0, None, (), now_ms)
            asked.done, asked.answer = done, refused
            self._parked[token] = asked
        else:
            waiting.done, waiting.answer = done, refused
        if decision.wake or not is_parked:
            self._wait(waiting)
        return done

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if self._is_settled:
            self._settle()
        elif self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(self._commit_timeout_ms / 1000, self._lose_patience)

    def _settle(self) -> None:
        """Answer whoever waits for what is committed now."""
        if self.partition.leader_epoch != self.leader_epoch:
            self._fail("another leader epoch has begun")
            return
        committed, waiting = self.partition.high_watermark, self._waiting
        while waiting and waiting[0].end_offset <= committed:
            one = waiting.popleft()
            for token, reply in one.wake:
                parked = self._parked.pop(token, None)
                if parked is not None:
                    parked.reply = reply
                    parked.tell()
            one.tell()
        if not waiting and self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        """Who has waited for the time that a commit may take is told so; what was written may still count."""
        self._patience = None
        now_ms, limit_ms = self._now_ms(), self._commit_timeout_ms
        left_ms = None
        for one in self._waiting:
            if one.done is None:
                continue
            left_ms = one.since_ms + limit_ms - now_ms
            if left_ms > 0:
                break
            one.refuse(_translated(Refused(Error.REQUEST_TIMED_OUT, f"not committed within {limit_ms} ms")))
        if left_ms is not None:
            self._patience = asyncio.get_running_loop().call_later(max(left_ms, 1) / 1000, self._lose_patience)

    # Writing.

    def write(
        self, records: Sequence[CoordinatorRecord], now_ms: int, *, atomic: bool = True, is_held: bool = False
    ) -> None:
        """Replay and append records. Refused if they do not fit, or the log has failed.

        With `is_held`, the answer can be held back: they are appended before it leaves, and soon in any case.
        """
        if isinstance(records, RecordRun):
            self._write_run(records, now_ms, is_held)
            return
        encoded = [encode_record(record) for record in records]
        limit = self._size_max
        sizes = [len(key) + len(value or b"") + _RECORD_OVERHEAD_MAX for key, value in encoded]
        size, is_written_now = sum(sizes), self._is_written_now(is_held)
        if atomic:
            self._check_size(size, limit)
        if self._queue_bytes + size > limit:
            self._flush()
        for (key, value), taken, record in zip(encoded, sizes, records, strict=True):
            if self._queue_bytes + taken > limit:
                self._flush()
            if not self._queue and not is_written_now:
                asyncio.get_running_loop().call_soon(self._flush)
            self._queue.append((now_ms, key, value, ()))
            self._queue_bytes += taken
            self.shard.replay(record, Origin(self._end_offset, now_ms))
            self._end_offset += 1
        if is_written_now:
            self._flush()
        self._check_there()

    def _is_written_now(self, is_held: bool) -> bool:
        """Nobody else has to have it; and it is not committed as soon as it is written, or nobody holds its answer."""
        if len(self.partition.isr) > 1:
            return False
        return not is_held or self.partition.log.log.config[FLUSH_MESSAGES] != FLUSH_MESSAGES.default

    def write_held(self) -> bool:
        """Write what was decided for answers that are held back; whether they may leave."""
        self._flush()
        return not self.is_over and self._is_settled

    def _write_run(self, records: RecordRun, now_ms: int, is_held: bool) -> None:
        keys, values = records.keys, records.values
        size, limit = records.size + len(keys) * _RECORD_OVERHEAD_MAX, self._size_max
        self._check_size(size, limit)
        if self._queue_bytes + size > limit:
            self._flush()
        is_written_now = self._is_written_now(is_held)
        if not self._queue and not is_written_now:
            asyncio.get_running_loop().call_soon(self._flush)
        self._queue += zip(repeat(now_ms), keys, values, repeat(()))
        self._queue_bytes += size
        records.replay(self.shard, self._end_offset)
        self._end_offset += len(keys)
        if is_written_now:
            self._flush()
        self._check_there()

    @property
    def _size_max(self) -> int:
        return self.partition.log.log.config[MAX_MESSAGE_BYTES] - _RECORD_OVERHEAD_MAX

    def _check_size(self, size: int, limit: int) -> None:
        if size > limit:
            raise Refused(
                Error.UNKNOWN_SERVER_ERROR,
                f"{self.partition.name}: a decision of {size} bytes; max.message.bytes allows {limit}",
            )

    def _check_there(self) -> None:
        if self.is_over:
            raise Refused(Error.NOT_COORDINATOR, f"{self.partition.name} could not be written")

    def _flush(self) -> None:
        """Append what was decided since the last time."""
        queue = self._queue
        if not queue or self.is_over:
            return
        base_offset = self._end_offset - len(queue)
        self._queue, self._queue_bytes = [], 0
        try:
            if self.partition.log.log.end_offset != base_offset:
                raise Refused(Error.NOT_COORDINATOR, f"someone else has written to {self.partition.name}")
            builder = BatchBuilder(base_offset)
            builder.extend(queue)
            self.partition.append_own(builder.build(codec=self._codec, leader_epoch=self.leader_epoch))
        except Refused as refusal:
            self._fail(refusal.text)
            return
        self._settle()

    def write_in_transaction(self, records: Sequence[CoordinatorRecord], producer: ProducerStamp, now_ms: int) -> None:
        self._flush()
        self._check_there()
        batch = build_batch(
            [Record(delta, now_ms, *encode_record(record)) for delta, record in enumerate(records)],
            codec=self._codec,
            transactional=True,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
        )
        first_offset = self._append_checked(batch)
        for offset, record in enumerate(records, first_offset):
            self.shard.replay(record, Origin(offset, now_ms, *producer))

    def write_marker(self, batch: bytes, producer: ProducerStamp, *, committed: bool, transaction_version: int) -> None:
        """The end of a transaction: what was pending counts now, or is forgotten."""
        self._flush()
        self._check_there()
        self._append_checked(batch, transaction_version)
        self.shard.replay_marker(producer.producer_id, producer.producer_epoch, committed=committed)

    def _append_checked(self, batch: bytes, transaction_version: int = 0) -> int:
        try:
            appended = self.partition.append(
                memoryview(bytearray(batch)),
                acks=-1,
                origin=producers.Origin.COORDINATOR,
                transaction_version=transaction_version,
            )
        except Refused as refusal:
            if self.partition.log.directory.failure is not None:
                self._fail(refusal.text)
            raise _translated(refusal) from None
        self._end_offset = appended.last_offset + 1
        return appended.first_offset

    # What is due.

    def _arm(self, now_ms: int) -> None:
        at_ms = self.shard.next_deadline()
        if at_ms is None or (self._timer is not None and self._timer_at_ms <= at_ms):
            return  # One that fires early finds nothing to do and is set again.
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        self._timer = asyncio.get_running_loop().call_later(max(at_ms - now_ms, 0) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self.is_over:
            now_ms = self._now_ms()
            self.apply(self.shard.tick(now_ms), now_ms)


def _translated(refusal: Refused) -> Refused:
    meaning = _MEANING.get(refusal.error)
    return refusal if meaning is None else Refused(meaning, refusal.text)
