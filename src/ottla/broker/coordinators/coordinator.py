"""The coordinator of an internal topic on this broker: decide, replay, append, wait until committed, answer.

Each partition of the topic that this broker leads is a shard: a state machine of the core, loaded from the partition's
log. `HostedShard` runs one shard. `Coordinator` knows all shards here, loads them, and finds the shard of a key.

Rule 1: a shard belongs to one leader epoch. When the epoch ends, or the log cannot be written, the shard is dropped and
        the waiting requests get NOT_COORDINATOR. If this broker leads the partition, the shard is loaded again. So
        nothing is acknowledged by its offset alone: another leader may have assigned that offset to other records
        (KAFKA-20634).
Rule 2: loading never blocks the loop for long: other tasks run between slices.
Rule 3: a damaged batch is left out with a warning, if the state without it is merely an older state (`may_leave_out`).
        That holds for groups. It does not hold for transactions: one that was to commit would be aborted.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Generic, TypeVar

from ottla.broker.coordinators.hosted_shard import Holder, HostedShard
from ottla.broker.network.backlog import Budget
from ottla.broker.partitions.partition import Partition
from ottla.core.runtime.decision import Decision, Token
from ottla.core.runtime.shard import BadCoordinatorRecord, ProducerStamp, RecordOrigin, RecordTypes, Shard, partition_of
from ottla.kernel import (
    BatchHeader,
    Codec,
    ControlType,
    CorruptBatch,
    build_end_txn_marker,
    read_end_txn_marker,
    read_records,
    scan,
)
from ottla.observe.trace import trace, warn
from ottla.storage.log_directory import OutOfFiles
from ottla.storage.partition_log import PartitionLog
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node

S = TypeVar("S", bound=Shard)
R = TypeVar("R")

_LOAD_SLICE_RECORDS = 500  # The loop is blocked for a few milliseconds per slice.
_LOAD_AGAIN_S = 1.0
"""The wait before another attempt after a temporary failure; until then clients get COORDINATOR_LOAD_IN_PROGRESS."""
_CLOCK_STEP_MS = 1_000
_NO_TOKEN = Token(0)


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
        may_leave_out: bool = False,
    ) -> None:
        """`new_shard` creates an empty shard for a partition in a leader epoch."""
        self._may_leave_out = may_leave_out
        self.topic = topic
        self.why_no_topic: str | None = None
        """The last reason why its topic could not be created. It is logged once: clients retry ten times a second."""
        self._node = node
        self._types = types
        self._new_shard = new_shard
        self._load_bytes = load_bytes
        self._commit_timeout_ms = commit_timeout_ms
        self._codec = codec
        self._shards: dict[int, HostedShard[S]] = {}
        self._is_closed = False
        self._tokens = count(1)
        self._clock_offset_ms = node.clock.wall_ms() - node.clock.monotonic_ms()

    # Which shards are here.

    def partition_of(self, key: str) -> int:
        """The partition of the internal topic for a key. Raises Refused while the topic does not exist."""
        topic = self._node.metadata.image.topics.get(self.topic)
        if topic is None:
            raise Refused(Error.COORDINATOR_NOT_AVAILABLE, f"topic {self.topic} does not exist yet")
        return partition_of(key, len(topic.partitions))

    def align(self) -> None:
        """Drop and load shards to match the partitions that this broker leads. Runs after every metadata change."""
        if self._is_closed:
            return  # The metadata still changes while the node stops; its logs are closed meanwhile.
        led = dict(self._led())
        for index, hosted in list(self._shards.items()):
            partition = led.get(index)
            if partition is not hosted.partition or partition.leader_epoch != hosted.leader_epoch:
                del self._shards[index]
                hosted.end(f"this broker no longer leads {self.topic}-{index}")
        for index, partition in led.items():
            if index not in self._shards:
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

    @property
    def is_loading(self) -> bool:
        return any(not hosted.is_active and hosted.failure is None for hosted in self._shards.values())

    def close(self) -> None:
        """End all shards; none is loaded afterwards."""
        self._is_closed = True
        for hosted in list(self._shards.values()):
            hosted.close("the node is stopping")
        self._shards.clear()

    # Deciding.

    async def decide(
        self,
        key: str,
        handle: Callable[[S, int, Token], Decision[R]],
        *,
        producer: ProducerStamp | None = None,
        refused: Callable[[Refused], R] | None = None,
    ) -> R:
        """Let the key's shard decide; returns the reply once it is committed. `refused` turns a refusal into a
        response."""
        result = self.submit(key, handle, producer=producer, refused=refused)
        return await result if isinstance(result, asyncio.Future) else result

    def submit(
        self,
        key: str,
        handle: Callable[[S, int, Token], Decision[R]],
        *,
        producer: ProducerStamp | None = None,
        refused: Callable[[Refused], R] | None = None,
        holder: Holder | None = None,
    ) -> "R | asyncio.Future[R]":
        """Like `decide`, but returns the reply itself if there is nothing to wait for, or if `holder` holds the
        response back."""
        try:
            hosted = self._hosted(self.partition_of(key))
            hosted.check_in_sync()
            now_ms, token = self._now_ms(), Token(next(self._tokens))
            decision = handle(hosted.shard, now_ms, token)
            if decision.records:
                if producer is None:
                    hosted.write(decision.records, now_ms, is_held=holder is not None)
                else:
                    hosted.write_in_transaction(decision.records, producer, now_ms)
        except Refused as refusal:
            if refused is None:
                raise
            return refused(refusal)
        return hosted.answer(decision, token, refused, now_ms, holder)

    def read(self, key: str, look: Callable[[S, int], R]) -> "R | asyncio.Future[R]":
        """Read from the key's shard; the result is available once everything that was read is committed."""
        return self._read(self._hosted(self.partition_of(key)), look)

    async def read_all(self, look: Callable[[S, int], R]) -> list[R]:
        """Read from every shard here. Raises Refused while one is being loaded."""
        replies: list[R] = []
        for index in sorted(self._shards):
            if index in self._shards and self._shards[index].failure is None:
                reply = self._read(self._hosted(index), look)
                replies.append(await reply if isinstance(reply, asyncio.Future) else reply)
        return replies

    async def read_each(
        self,
        keys: Callable[[S], Iterable[str]],
        look: Callable[[S, Sequence[str], int], list[R]],
        budget: Budget,
    ) -> list[R]:
        """Read each shard's keys, some at a time. Raises Refused while a shard is being loaded."""
        found: list[R] = []
        for index in sorted(self._shards):
            if index not in self._shards or self._shards[index].failure is not None:
                continue
            async for few in budget.parts(list(keys(self._hosted(index).shard))):

                def looks(shard: S, now_ms: int, few: Sequence[str] = few) -> list[R]:
                    return look(shard, few, now_ms)

                reply = self._read(self._hosted(index), looks)
                found += await reply if isinstance(reply, asyncio.Future) else reply
        return found

    def _read(self, hosted: HostedShard[S], look: Callable[[S, int], R]) -> "R | asyncio.Future[R]":
        now_ms = self._now_ms()
        seen: Decision[R] = Decision(look(hosted.shard, now_ms))
        return hosted.answer(seen, _NO_TOKEN, None, now_ms)

    def apply_all(self, handle: Callable[[S, int], Decision[None]]) -> None:
        """Call `handle` for every active shard on this broker and write its decisions. No request waits for them."""
        for hosted in list(self._shards.values()):
            if hosted.is_active:
                now_ms = self._now_ms()
                hosted.apply(handle(hosted.shard, now_ms), now_ms)

    def end_transaction(
        self,
        index: int,
        producer: ProducerStamp,
        *,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int = 0,
        refused: Callable[[Refused], Refused],
    ) -> "asyncio.Future[Refused | None] | None":
        """Write the marker of a transaction. Returns None if the marker is committed and its effect visible, otherwise
        a future. The future is done when that is so (result None), or when it never will be: its result is then the
        refusal, as translated by `refused`."""
        hosted, now_ms = self._hosted(index), self._now_ms()
        marker = build_end_txn_marker(
            ControlType.COMMIT if committed else ControlType.ABORT,
            coordinator_epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            timestamp=now_ms,
        )
        hosted.write_marker(marker, producer, committed=committed, transaction_version=transaction_version)
        ended: Decision[Refused | None] = Decision(None)
        done = hosted.answer(ended, _NO_TOKEN, refused, now_ms)
        return done if isinstance(done, asyncio.Future) else None

    def _hosted(self, index: int) -> HostedShard[S]:
        hosted = self._shards.get(index)
        if hosted is None or hosted.failure is not None:
            why = "it is led elsewhere or offline" if hosted is None else f"its log could not be read: {hosted.failure}"
            raise Refused(Error.NOT_COORDINATOR, f"{self.topic}-{index} is not coordinated here: {why}")
        if not hosted.is_active:
            raise Refused(Error.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic}-{index} is being loaded: ask again")
        return hosted

    def _now_ms(self) -> int:
        """The time of the wall clock. If that was set, deadlines move with it: a session is a duration, not a date."""
        clock = self._node.clock
        wall_ms = clock.wall_ms()
        offset_ms = wall_ms - clock.monotonic_ms()
        step_ms = offset_ms - self._clock_offset_ms
        if abs(step_ms) >= _CLOCK_STEP_MS:
            self._clock_offset_ms = offset_ms
            warn("clock.set", topic=self.topic, by_ms=step_ms)
            for hosted in self._shards.values():
                hosted.shard.clock_set(step_ms)
        return wall_ms

    # Loading and dropping shards.

    def _take_over(self, index: int, partition: Partition) -> None:
        hosted = self._shards[index] = HostedShard(
            index,
            partition,
            self._new_shard(index, partition.leader_epoch),
            now_ms=self._now_ms,
            on_end=self._ended,
            commit_timeout_ms=self._commit_timeout_ms,
            codec=self._codec,
        )
        log = partition.log.state
        if log.log_start_offset == log.end_offset:
            hosted.activate()
        else:
            self._node.spawn(self._load(hosted))

    def _ended(self, hosted: HostedShard[S]) -> None:
        """A shard has failed: drop it, and load it again if this broker still leads its partition."""
        if self._shards.get(hosted.index) is hosted:
            del self._shards[hosted.index]
        self.align()

    def _begin_anew(self, hosted: HostedShard[S]) -> None:
        """Load a shard again from the start, unless it has been dropped since."""
        if self._shards.get(hosted.index) is hosted:
            del self._shards[hosted.index]
            hosted.close("it is loaded anew")
            self.align()

    async def _load(self, hosted: HostedShard[S]) -> None:
        began_ms = self._node.clock.monotonic_ms()
        try:
            loaded = await self._replay_log(hosted)
        except (Refused, BadCoordinatorRecord) as error:
            warn("coordinator.not_loaded", partition=hosted.partition.name, error=error)
            if isinstance(error, OutOfFiles):
                await asyncio.sleep(_LOAD_AGAIN_S)
                self._begin_anew(hosted)
            else:
                hosted.failure = str(error)
            return
        if not hosted.is_over:
            took_ms = self._node.clock.monotonic_ms() - began_ms
            trace("coordinator.loaded", partition=hosted.partition.name, records=loaded, took_ms=took_ms)
            hosted.activate()

    async def _replay_log(self, hosted: HostedShard[S]) -> int:
        log = hosted.partition.log
        offset, end_offset = log.state.log_start_offset, log.state.end_offset
        loaded = since_rest = 0
        while offset < end_offset and not hosted.is_over:
            try:
                data = await self._read_part(log, offset, end_offset)
                if not data:
                    break  # Compaction has removed the last records.
                scanned = scan(data)
                if not scanned.headers:
                    raise CorruptBatch(f"{log.name}: offset {offset}: {scanned.fault}")
            except CorruptBatch as error:
                offset = await self._left_out(log, offset, error)
                continue
            view, position = memoryview(data), 0
            for header in scanned.headers:
                self._replay_batch(hosted.shard, view[position : position + header.size], header)
                position += header.size
                offset = header.next_offset
                loaded += header.count
                since_rest += header.count
                if since_rest >= _LOAD_SLICE_RECORDS:
                    since_rest = 0
                    await asyncio.sleep(0)
        return loaded

    async def _read_part(self, log: PartitionLog, offset: int, end_offset: int) -> bytes:
        part = log.read(offset, self._load_bytes, end_offset)
        try:
            return part.read() if part.is_warm() else await self._node.store.disk.in_thread(part.read)
        except OSError as error:
            if log.here.closed:
                raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"{log.name} was deleted") from error
            raise log.directory.fail(error, "load a coordinator") from error

    async def _left_out(self, log: PartitionLog, offset: int, error: CorruptBatch) -> int:
        """The offset of the next readable batch after a damaged one at `offset` (Rule 3)."""
        if not self._may_leave_out:
            raise error
        following = await self._node.store.disk.in_thread(partial(log.find_readable, offset + 1))
        warn(
            "coordinator.batch_left_out",
            partition=log.name,
            from_offset=offset,
            to_offset=following - 1,
            error=error,
        )
        return following

    def _replay_batch(self, shard: S, batch: memoryview, header: BatchHeader) -> None:
        if header.is_control:
            if header.is_transactional and header.count:
                marker = read_end_txn_marker(batch)
                committed = marker.control_type is ControlType.COMMIT
                shard.replay_marker(header.producer_id, header.producer_epoch, committed=committed)
            return
        producer = (header.producer_id, header.producer_epoch) if header.is_transactional else ()
        for record in read_records(batch, header):
            try:
                told = self._types.decode(record.key, record.value)
            except BadCoordinatorRecord as error:
                if not self._may_leave_out:
                    raise
                warn("coordinator.record_left_out", topic=self.topic, offset=record.offset, error=error)
                continue
            if told is None:
                warn("coordinator.record_unknown", topic=self.topic, offset=record.offset, key=record.key)
            else:
                shard.replay(told, RecordOrigin(record.offset, record.timestamp, *producer))
