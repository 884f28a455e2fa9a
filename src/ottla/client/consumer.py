"""A consumer of assigned partitions.

    async with Consumer(client) as consumer:
        await consumer.assign({TopicPartition("orders", 0): BEGINNING})
        for record in await consumer.poll():
            ...

Rule 1: a record that cannot be decoded, or a damaged batch, does not affect the records around it and is never retried
        silently: `on_failure` says whether to stop there, skip it with a warning, or return it with its `failure`.
Rule 2: to stop means to raise `RecordFailed` at every poll, after all good records before it were returned; `seek` past
        it continues.
Rule 3: partitions take turns; see `core/cursors.py`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from ottla.client.client import Client
from ottla.client.core.cursors import Cursor, Cursors
from ottla.client.core.errors import Misused
from ottla.client.core.names import TopicPartition
from ottla.client.fetcher import Fetcher, FetchRules
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.kernel import Record
from ottla.observe.trace import warn
from ottla.rpc.connection import ANSWER_BYTES_MAX
from ottla.rpc.errors import ClientError

Headers = tuple[tuple[str, bytes | None], ...]
Decode = Callable[[bytes | None], Any]


class Start(NamedTuple):
    """Where to begin: at an offset, or at a time (milliseconds since 1970, or a special value)."""

    offset: int | None = None
    moment: int | None = None


BEGINNING: Final = Start(moment=EARLIEST)
END: Final = Start(moment=LATEST)


class OnFailure(Enum):
    """What to do with a record or batch that cannot be read."""

    STOP = "stop"
    SKIP = "skip"
    GIVE = "give"


class RecordFailure(NamedTuple):
    partition: TopicPartition
    offset: int
    next_offset: int  # Where to continue after it.
    reason: str


class RecordFailed(ClientError):
    """Raised for an unreadable record with `OnFailure.STOP`."""

    def __init__(self, failure: RecordFailure) -> None:
        self.failure = failure
        super().__init__(
            f"partition {failure.partition}, offset {failure.offset}: {failure.reason}",
            f"Go on at offset {failure.next_offset}, or let failures be skipped or given out.",
        )


class Received(NamedTuple):
    """A record. With a `failure`, key and value are the undecoded bytes, or None if the batch is damaged."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers
    failure: RecordFailure | None = None


class Consumer:
    """A consumer of assigned partitions."""

    def __init__(
        self,
        client: Client,
        *,
        decode_key: Decode | None = None,
        decode_value: Decode | None = None,
        on_failure: OnFailure = OnFailure.STOP,
        committed: bool = False,
        reset: Start | None = None,
        sessions: bool = True,
        fetch_wait_ms_max: int = 500,
        fetch_bytes_min: int = 1,
        fetch_bytes_max: int = 50 * 1024 * 1024,
        partition_bytes_max: int = 1024 * 1024,
    ) -> None:
        """`committed` filters out aborted transactions and does not read past open ones.

        `reset` is where to continue when the position is outside of the log; with None that is an error.
        """
        if not 0 < fetch_bytes_max <= ANSWER_BYTES_MAX // 2:
            raise Misused(f"fetch_bytes_max is {fetch_bytes_max}", f"Choose 1 to {ANSWER_BYTES_MAX // 2}.")
        self._client = client
        self._decode_key = decode_key
        self._decode_value = decode_value
        self._on_failure = on_failure
        self._committed = committed
        self._partition_bytes_max = partition_bytes_max
        self._cursors = Cursors()
        self._arrived = asyncio.Event()
        rules = FetchRules(committed, sessions, fetch_wait_ms_max, fetch_bytes_min, fetch_bytes_max)
        self._fetcher = Fetcher(client, self._cursors, rules, self._arrived.set)
        self._fetcher.reset_to = None if reset is None else lambda partition: self._resolve({partition: reset})
        self._stopped_at: RecordFailure | None = None
        self._woken = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._fetcher.close()

    async def assign(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Consume these partitions and no others. Raises ClientError if one does not exist or its leader cannot be
        reached."""
        positions = await self._resolve(starts)
        for cursor in list(self._cursors):
            self._cursors.remove(cursor.partition)
        for partition, offset in positions.items():
            self._cursors.add(Cursor(partition, offset, self._partition_bytes_max))
        self._stopped_at = None
        self._fetcher.wake()

    async def add(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Consume these partitions in addition."""
        for partition, offset in (await self._resolve(starts)).items():
            self._cursors.add(Cursor(partition, offset, self._partition_bytes_max))
        self._fetcher.wake()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop consuming these partitions; the others continue."""
        for partition in partitions:
            self._cursors.remove(partition)
            if self._stopped_at is not None and self._stopped_at.partition == partition:
                self._stopped_at = None

    async def seek(self, partition: TopicPartition, start: Start) -> None:
        cursor = self._cursor(partition)
        cursor.move_to((await self._resolve({partition: start}))[partition])
        self._stopped_at = None
        self._fetcher.wake()

    def pause(self, partition: TopicPartition) -> None:
        self._cursor(partition).paused = True

    def resume(self, partition: TopicPartition) -> None:
        self._cursor(partition).paused = False
        self._arrived.set()
        self._fetcher.wake()

    def wake(self) -> None:
        """End a waiting `poll`, possibly without records."""
        self._woken = True
        self._arrived.set()

    @property
    def assignment(self) -> list[TopicPartition]:
        return sorted(cursor.partition for cursor in self._cursors)

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that `poll` returns."""
        return self._cursor(partition).position

    def end(self, partition: TopicPartition) -> int | None:
        """The end of the readable log when the broker last reported it; None before that."""
        cursor = self._cursor(partition)
        end = cursor.last_stable_offset if self._committed else cursor.high_watermark
        return end if end >= 0 else None

    async def poll(self, *, records_max: int = 500, timeout_ms: int = 1_000) -> list[Received]:
        """The next records, at least one unless `timeout_ms` passes without any, or `wake` is called."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    self._arrived.clear()
                    received = self._take(records_max)
                    if received or self._woken:
                        self._woken = False
                        return received
                    await self._arrived.wait()
        except TimeoutError:
            return []

    def _take(self, limit: int) -> list[Received]:
        if self._stopped_at is not None:
            raise RecordFailed(self._stopped_at)
        self._fetcher.start()
        received: list[Received] = []
        taken = self._cursors.take(limit)
        for number, (cursor, record) in enumerate(taken):
            one = self._decoded(cursor.partition, record)
            if one.failure is None or self._on_failure is OnFailure.GIVE:
                received.append(one)
            elif self._on_failure is OnFailure.SKIP:
                _skipped(one.failure)
            else:
                self._put_back(taken[number:])
                self._stopped_at = one.failure
                if not received:
                    raise RecordFailed(one.failure)
                return received
        self._fetcher.wake()
        return received or self._at_obstacle()

    def _at_obstacle(self) -> list[Received]:
        """Handle what comes after the good records of a partition: an error, or a damaged batch."""
        cursor = self._cursors.stopped()
        if cursor is None:
            return []
        if cursor.error is not None:
            error, cursor.error = cursor.error, None  # The next poll tries again.
            cursor.failing_since_ms = None
            raise error
        damage = cursor.damage
        assert damage is not None
        failure = RecordFailure(cursor.partition, damage.offset, damage.next_offset, damage.reason)
        if self._on_failure is OnFailure.STOP:
            self._stopped_at = failure
            raise RecordFailed(failure)
        cursor.move_to(damage.next_offset)
        self._arrived.set()
        self._fetcher.wake()
        if self._on_failure is OnFailure.SKIP:
            _skipped(failure)
            return []
        return [Received(*cursor.partition, damage.offset, -1, None, None, (), failure)]

    def _put_back(self, taken: Iterable[tuple[Cursor, Record]]) -> None:
        for cursor, record in reversed(list(taken)):
            cursor.records.appendleft(record)

    def _decoded(self, partition: TopicPartition, record: Record) -> Received:
        key: Any = record.key
        value: Any = record.value
        failure = None
        part = "key"
        try:
            if self._decode_key is not None:
                key = self._decode_key(record.key)
            part = "value"
            if self._decode_value is not None:
                value = self._decode_value(record.value)
        except Exception as error:  # Any exception of the user's decoder is this record's failure.
            reason = f"its {part} cannot be decoded: {type(error).__name__}: {error}"
            failure = RecordFailure(partition, record.offset, record.offset + 1, reason)
            key, value = record.key, record.value
        return Received(*partition, record.offset, record.timestamp, key, value, record.headers, failure)

    def _cursor(self, partition: TopicPartition) -> Cursor:
        cursor = self._cursors.get(partition)
        if cursor is None:
            raise Misused(f"partition {partition} is not assigned to this consumer", "Assign it first.")
        return cursor

    async def _resolve(self, starts: Mapping[TopicPartition, Start]) -> dict[TopicPartition, int]:
        """Offsets to begin at. A time later than the last record means the end."""
        moments = {partition: start.moment for partition, start in starts.items() if start.moment is not None}
        found = await list_offsets(self._client, moments, committed=self._committed) if moments else {}
        beyond = {partition: LATEST for partition, at in found.items() if at.offset < 0}
        if beyond:
            found |= await list_offsets(self._client, beyond, committed=self._committed)
        return {
            partition: found[partition].offset if start.offset is None else start.offset
            for partition, start in starts.items()
        }


def _skipped(failure: RecordFailure) -> None:
    warn("client.record_skipped", partition=str(failure.partition), offset=failure.offset, reason=failure.reason)
