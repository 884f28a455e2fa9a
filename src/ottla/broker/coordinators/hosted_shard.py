"""Runs one shard: its decisions are replayed, appended to its partition, and answered when they are committed.

Rule 1: decisions of one turn of the loop share a batch, unless this broker alone is in sync: then each is committed as
        it is written, and waiting for others would cost more than it saves. If the connection can hold responses back
        (`Holder`), a response is ready before its records are written. They are written when the first response is to
        be sent, so requests that arrive together share one batch. A decision is never split over two batches, except
        for those of `tick`.
Rule 2: a response waits until everything that its decision may have seen is committed, even if the decision wrote
        nothing itself.
Rule 3: records in a transaction are appended as a batch of their own and checked by the log, because a newer producer
        may have fenced the requesting one.
Rule 4: a shard ends if its partition cannot be written, or has another leader epoch. Waiting requests are then refused,
        and no decision made since is acknowledged.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Generic, Protocol, TypeVar

from ottla.broker.partitions.partition import Partition
from ottla.config import FLUSH_MESSAGES, MAX_MESSAGE_BYTES
from ottla.core.log import producers
from ottla.core.runtime.decision import PARKED, Decision, Token
from ottla.core.runtime.shard import CoordinatorRecord, ProducerStamp, RecordOrigin, RecordRun, Shard, encode_record
from ottla.kernel import BatchBuilder, Codec, Record, build_batch
from ottla.observe.trace import trace
from ottla.wire.errors import Error, Refused

S = TypeVar("S", bound=Shard)
R = TypeVar("R")

Answer = Callable[[Refused], Any]
"""Turns a refusal into a response."""

_RECORD_OVERHEAD_MAX = 64  # An upper bound for the varints around a key and a value.

_EPOCH_IS_OVER = (Error.NOT_LEADER_OR_FOLLOWER, Error.UNKNOWN_TOPIC_OR_PARTITION)

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
"""Which error a client of the coordinator gets for an error of the log, as in Kafka."""


class Holder(Protocol):
    """A connection that can delay its responses until the records of several decisions are written together."""

    def hold(self, hosted: "HostedShard[Any]", /) -> None:
        """Send no response before `write_held`. If that fails, send none of the responses that are ready."""


class _Waiting:
    """A response that waits for its commit, or a parked request."""

    __slots__ = ("answer", "done", "reply", "wake")

    def __init__(self, reply: Any, wake: Sequence[tuple[Token, object]]) -> None:
        self.reply = reply
        self.wake = wake
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
        """Whether the shard is loaded and answers requests."""
        self.is_over = False
        self.failure: str | None = None
        """The reason why the shard could not be loaded."""
        self._now_ms = now_ms
        self._on_end = on_end
        self._commit_timeout_ms = commit_timeout_ms
        self._codec = codec
        self._end_offset = partition.log.state.end_offset
        """The offset after the last decided record, including the records in the queue."""
        self._queue: list[tuple[int, bytes, bytes | None, tuple[()]]] = []
        """Records to append: timestamp, key, value and headers."""
        self._queue_bytes = 0
        self._waiting: dict[_Waiting, None] = {}
        """The waiting responses in the order of their decisions."""
        self._parked: dict[Token, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0

    def activate(self) -> None:
        self.is_active = True
        now_ms = self._now_ms()
        self.apply(self.shard.loaded(now_ms), now_ms)

    def end(self, why: str) -> None:
        """End the shard with a trace: this broker no longer leads the partition, or cannot write it."""
        trace("coordinator.ended", partition=self.partition.name, epoch=self.leader_epoch, reason=why)
        self.close(why)

    def close(self, why: str) -> None:
        """End the shard. The waiting requests get NOT_COORDINATOR, so that clients look for the new coordinator."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        refusal = Refused(Error.NOT_COORDINATOR, why)
        for one in (*self._waiting, *self._parked.values()):
            one.refuse(refusal)
        self._waiting.clear()
        self._parked.clear()

    def _fail(self, why: str) -> None:
        self.end(why)
        self._on_end(self)

    # Deciding.

    def check_in_sync(self) -> None:
        try:
            self.partition.check_in_sync()
        except Refused as refusal:
            raise _translated(refusal) from None

    def apply(self, decision: Decision[None], now_ms: int) -> None:
        """Apply a decision for which no request waits. Its records may be split over several batches."""
        try:
            self.write(decision.records, now_ms, atomic=False)
        except Refused:
            return  # The shard has ended. The requests that waited for this decision were refused.
        if decision.accept is not None:
            decision.accept()
        if decision.wake:
            self._wait(_Waiting(None, decision.wake))
        self._arm(now_ms)

    # Answering.

    @property
    def _is_settled(self) -> bool:
        """Whether everything decided so far is committed."""
        return self.partition.high_watermark >= self._end_offset

    def answer(
        self, decision: Decision[R], token: Token, refused: Answer | None, now_ms: int, holder: Holder | None = None
    ) -> "R | asyncio.Future[R]":
        """The reply, or a future for it. The future is done when the reply is committed or, for a parked request, when
        a decision wakes the token."""
        if decision.accept is not None:
            decision.accept()
        self._arm(now_ms)
        is_parked = decision.reply is PARKED
        if not decision.wake and not is_parked:
            if self._is_settled:
                return decision.reply
            if holder is not None and self._queue and len(self.partition.isr) == 1:
                holder.hold(self)  # `write` has left it to the holder.
                return decision.reply
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(decision.reply, decision.wake)
        if is_parked:
            asked = _Waiting(None, ())
            asked.done, asked.answer = done, refused
            self._parked[token] = asked
        else:
            waiting.done, waiting.answer = done, refused
        if decision.wake or not is_parked:
            self._wait(waiting)
        return done

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting[waiting] = None
        deadline_s = asyncio.get_running_loop().time() + self._commit_timeout_ms / 1000
        self._follow(waiting, self._end_offset, deadline_s)

    def _follow(self, waiting: _Waiting, end_offset: int, deadline_s: float | None) -> None:
        timeout_ms = None
        if deadline_s is not None:
            timeout_ms = max(round((deadline_s - asyncio.get_running_loop().time()) * 1000), 1)
        try:
            commit = self.partition.committed(self.leader_epoch, end_offset, timeout_ms)
        except Refused as refusal:
            self._fail(refusal.text)
            return
        if commit is not None:
            commit.add_done_callback(lambda done: self._judge(waiting, end_offset, deadline_s, done.result()))
        elif len(self._waiting) == 1:
            self._settle(waiting)
        else:
            # The earlier ones are committed too, and are answered first.
            asyncio.get_running_loop().call_soon(self._settle, waiting)

    def _judge(self, waiting: _Waiting, end_offset: int, deadline_s: float | None, refusal: Refused | None) -> None:
        """The wait for a commit is over: answer, end the shard, wait again, or refuse because it took too long."""
        if self.is_over:
            return
        if refusal is None:
            self._settle(waiting)
        elif refusal.error in _EPOCH_IS_OVER:
            self._fail(refusal.text)
        elif refusal.error is not Error.REQUEST_TIMED_OUT:
            self._follow(waiting, end_offset, deadline_s)  # A sync failed; it is retried while the disk works.
        else:
            # The records may still be committed: parked requests that the decision wakes go on waiting for that.
            waiting.refuse(_translated(refusal))
            if waiting.wake:
                self._follow(waiting, end_offset, None)
            else:
                self._waiting.pop(waiting, None)

    def _settle(self, waiting: _Waiting) -> None:
        """The decision is committed: answer its request, and the parked requests that it wakes."""
        if waiting not in self._waiting:
            return  # The shard has ended, and has already refused the request.
        del self._waiting[waiting]
        for token, reply in waiting.wake:
            parked = self._parked.pop(token, None)
            if parked is not None:
                parked.reply = reply
                parked.tell()
        waiting.tell()

    # Writing.

    def write(
        self, records: Sequence[CoordinatorRecord], now_ms: int, *, atomic: bool = True, is_held: bool = False
    ) -> None:
        """Replay and append records. Raises Refused if they do not fit in a batch, or the log has failed.

        With `is_held`, the response can be held back: the records are appended before it is sent, and in any case in
        the next turn of the loop.
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
            self.shard.replay(record, RecordOrigin(self._end_offset, now_ms))
            self._end_offset += 1
        if is_written_now:
            self._flush()
        self._check_there()

    def _is_written_now(self, is_held: bool) -> bool:
        """Whether records are appended immediately: no other replica is in sync, and either the response is not held
        back, or the topic requires syncs, so that appended records are not committed yet."""
        if len(self.partition.isr) > 1:
            return False
        return not is_held or self.partition.log.state.config[FLUSH_MESSAGES] != FLUSH_MESSAGES.default

    def write_held(self) -> bool:
        """Append the records of responses that are held back; returns whether these may be sent."""
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
        return self.partition.log.state.config[MAX_MESSAGE_BYTES] - _RECORD_OVERHEAD_MAX

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
        """Append the records in the queue as one batch."""
        queue = self._queue
        if not queue or self.is_over:
            return
        base_offset = self._end_offset - len(queue)
        self._queue, self._queue_bytes = [], 0
        try:
            if self.partition.log.state.end_offset != base_offset:
                raise Refused(Error.NOT_COORDINATOR, f"someone else has written to {self.partition.name}")
            builder = BatchBuilder(base_offset)
            builder.extend(queue)
            batch = builder.build(codec=self._codec, leader_epoch=self.leader_epoch)
            self.partition.append_own(batch, self.leader_epoch)
        except Refused as refusal:
            self._fail(refusal.text)

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
            self.shard.replay(record, RecordOrigin(offset, now_ms, *producer))

    def write_marker(self, batch: bytes, producer: ProducerStamp, *, committed: bool, transaction_version: int) -> None:
        """End a transaction: its pending records take effect, or are dropped."""
        self._flush()
        self._check_there()
        self._append_checked(batch, transaction_version)
        self.shard.replay_marker(producer.producer_id, producer.producer_epoch, committed=committed)

    def _append_checked(self, batch: bytes, transaction_version: int = 0) -> int:
        try:
            appended = self.partition.append(
                memoryview(bytearray(batch)),
                acks=-1,
                origin=producers.AppendOrigin.COORDINATOR,
                transaction_version=transaction_version,
            )
        except Refused as refusal:
            if self.partition.log.directory.failure is not None:
                self._fail(refusal.text)
            raise _translated(refusal) from None
        self._end_offset = appended.last_offset + 1
        return appended.first_offset

    # Timers.

    def _arm(self, now_ms: int) -> None:
        at_ms = self.shard.next_deadline()
        if at_ms is None or (self._timer is not None and self._timer_at_ms <= at_ms):
            return  # A timer that fires early finds nothing to do and is set again.
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
