"""Keeps the cursors of a consumer supplied.

Rule 1: one fetch per leader is under way, on a connection of its own, for those of its partitions that want more.
Rule 2: a fetch that leaves out partitions because their records are not taken yet waits at the broker only shortly:
        they may want more soon, and answers come in order.
Rule 3: an answer counts only for a cursor that still stands where it stood when it was asked.
Rule 4: what asking again may mend is asked again, more slowly each time, until the client's `api_timeout_ms`; then,
        and for what it cannot mend, the cursor has an error for the consumer to raise.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple

from ottla.client.client import Client
from ottla.client.core.addresses import Address
from ottla.client.core.backoff import Backoff
from ottla.client.core.cursors import Cursor, Cursors
from ottla.client.core.errors import ClientError, Declined, NoLeader, error_of
from ottla.client.core.names import TopicPartition
from ottla.client.core.session import Asked, FetchSession, SessionRequest
from ottla.kernel import Aborted, RecordReader
from ottla.wire.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from ottla.wire.errors import Error
from ottla.wire.types import NO_UUID

CHANNEL: Final = "fetch"
SHORT_WAIT_MS: Final = 20
RETRY: Final = Backoff(first_ms=50, max_ms=1_000)
_WITH_NAMES: Final = 12  # Last version of Fetch that names topics; later ones carry their ids.
_NO_EPOCH: Final = -1

Resolve = Callable[[TopicPartition], Awaitable[dict[TopicPartition, int]]]


class FetchRules(NamedTuple):
    committed: bool
    sessions: bool
    wait_ms_max: int
    bytes_min: int
    bytes_max: int


class Fetcher:
    def __init__(self, client: Client, cursors: Cursors, rules: FetchRules, arrived: Callable[[], None]) -> None:
        self._client = client
        self._clock = client.ports.clock
        self._cursors = cursors
        self._rules = rules
        self._arrived = arrived
        self.reset_to: Resolve | None = None
        self._sessions: dict[int, FetchSession] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._others: dict[asyncio.Task[None], None] = {}
        self._failures: dict[TopicPartition, int] = {}
        self._wake = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        elif self._runner.done():
            self._runner.result()  # A defect in here is raised where somebody sees it.

    def wake(self) -> None:
        self._wake.set()

    async def close(self) -> None:
        running = [*([self._runner] if self._runner else []), *self._asking.values(), *self._others]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now = self._clock.monotonic_ms()
            wanting = [cursor for cursor in self._cursors if cursor.wants_more and cursor.not_before_ms <= now]
            unknown = {one.partition.topic: None for one in wanting if not self._known(one)}
            if unknown:
                await self._refresh(list(unknown))
            by_leader: dict[int, list[Cursor]] = {}
            for cursor in wanting:
                leader = self._client.cluster.leader(cursor.partition)
                if leader >= 0:
                    by_leader.setdefault(leader, []).append(cursor)
                elif cursor.not_before_ms <= now:  # Not in trouble already, for want of an answer.
                    exists = self._client.cluster.partition(cursor.partition) is not None
                    self._troubled(cursor, NoLeader(cursor.partition, exists=exists))
            for leader, cursors in by_leader.items():
                if leader not in self._asking:
                    self._asking[leader] = asyncio.create_task(self._fetch(leader, cursors))
            await self._sleep([one.not_before_ms for one in self._cursors if one.not_before_ms > now])

    async def _sleep(self, moments: list[int]) -> None:
        wait_s = max(min(moments) - self._clock.monotonic_ms(), 1) / 1000 if moments else None
        try:
            async with asyncio.timeout(wait_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _known(self, cursor: Cursor) -> bool:
        return self._client.metadata.is_fresh(cursor.partition.topic)

    async def _refresh(self, topics: list[str]) -> None:
        try:
            await self._client.metadata.refresh(topics)
        except ClientError as error:
            for cursor in self._cursors:
                if cursor.partition.topic in topics:
                    self._troubled(cursor, error)

    # -- One fetch

    async def _fetch(self, leader: int, cursors: list[Cursor]) -> None:
        session = self._sessions.setdefault(leader, FetchSession())
        wanted = {cursor.partition: self._asked(cursor) for cursor in cursors}
        try:
            connection = await self._client.brokers.node(leader, CHANNEL)
            request = self._request(session.request(wanted), leader, len(cursors))
            by_name = any(asked.topic_id == NO_UUID for asked in wanted.values())
            answer: FetchResponse = await connection.call(
                request,
                timeout_ms=self._client.request_timeout_ms + request.max_wait_ms,
                at_most=_WITH_NAMES if by_name else None,
            )
            self._answered(session, wanted, answer, connection.address)
        except ClientError as error:
            session.reset()
            for cursor in cursors:
                self._troubled(cursor, error)
        except BaseException:
            session.reset()
            raise
        finally:
            self._asking.pop(leader, None)
            self._wake.set()

    def _asked(self, cursor: Cursor) -> Asked:
        known = self._client.cluster.partition(cursor.partition)
        return Asked(
            self._client.cluster.topic_id(cursor.partition.topic),
            cursor.fetch_offset,
            _NO_EPOCH if known is None else known.leader_epoch,
            cursor.max_bytes,
        )

    def _request(self, session: SessionRequest, leader: int, asked: int) -> FetchRequest:
        led = sum(1 for cursor in self._cursors if self._client.cluster.leader(cursor.partition) == leader)
        return FetchRequest(
            max_wait_ms=self._rules.wait_ms_max if asked == led else min(SHORT_WAIT_MS, self._rules.wait_ms_max),
            min_bytes=self._rules.bytes_min,
            max_bytes=self._rules.bytes_max,
            isolation_level=1 if self._rules.committed else 0,
            session_id=session.session_id,
            session_epoch=session.epoch if self._rules.sessions else -1,
            topics=_fetch_topics(session.partitions),
            forgotten_topics_data=_forgotten(session.forgotten),
        )

    def _answered(
        self, session: FetchSession, wanted: dict[TopicPartition, Asked], answer: FetchResponse, broker: Address
    ) -> None:
        error = error_of(answer.error_code)
        if error is not Error.NONE:
            raise Declined(error, broker=broker, subject="fetch")
        if self._rules.sessions:
            session.answered(answer.session_id)
        else:
            session.reset()
        names = {asked.topic_id: partition.topic for partition, asked in wanted.items()}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                cursor = self._cursors.get(partition)
                asked = wanted.get(partition)
                if cursor is not None and asked is not None and cursor.fetch_offset == asked.offset:
                    self._supplied(cursor, data, broker)

    def _supplied(self, cursor: Cursor, data: PartitionData, broker: Address) -> None:
        error = error_of(data.error_code)
        if error is Error.OFFSET_OUT_OF_RANGE:
            self._out_of_range(cursor, data, broker)
            return
        if error is not Error.NONE:
            self._troubled(cursor, Declined(error, broker=broker, subject=f"partition {cursor.partition}"))
            return
        self._failures.pop(cursor.partition, None)
        cursor.high_watermark = data.high_watermark
        cursor.last_stable_offset = data.last_stable_offset
        cursor.log_start_offset = data.log_start_offset
        if data.records:
            aborted = [Aborted(one.first_offset, one.producer_id) for one in data.aborted_transactions or ()]
            cursor.take_in(RecordReader(data.records, cursor.fetch_offset, aborted))
            self._arrived()

    def _out_of_range(self, cursor: Cursor, data: PartitionData, broker: Address) -> None:
        if self.reset_to is None:
            text = f"offset {cursor.fetch_offset} is not in the log"
            if data.log_start_offset >= 0:
                text += f", which starts at {data.log_start_offset} and ends at {data.high_watermark}"
            subject = f"partition {cursor.partition}"
            cursor.error = Declined(Error.OFFSET_OUT_OF_RANGE, broker=broker, subject=subject, text=text)
            self._arrived()
            return
        cursor.seeking = True
        self._spawn(self._seek(cursor, self.reset_to))

    async def _seek(self, cursor: Cursor, resolve: Resolve) -> None:
        try:
            found = await resolve(cursor.partition)
            cursor.move_to(found[cursor.partition])
        except ClientError as error:
            cursor.seeking = False
            self._troubled(cursor, error)
        self._wake.set()

    def _troubled(self, cursor: Cursor, error: ClientError) -> None:
        """Try again later, or let the consumer know."""
        now = self._clock.monotonic_ms()
        self._client.metadata.stale(cursor.partition.topic)
        if cursor.failing_since_ms is None:
            cursor.failing_since_ms = now
            self._failures[cursor.partition] = 0
        self._failures[cursor.partition] = failures = self._failures.get(cursor.partition, 0) + 1
        cursor.not_before_ms = now + RETRY.wait_ms(failures, self._client.ports.random)
        if not error.retriable or now - cursor.failing_since_ms >= self._client.api_timeout_ms:
            cursor.error = error
            self._arrived()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._others[task] = None
        task.add_done_callback(lambda done: self._others.pop(done, None))


def _fetch_topics(partitions: dict[TopicPartition, Asked]) -> list[FetchTopic]:
    """In the order of turns: a broker serves in this order until the answer is full."""
    topics: dict[str, FetchTopic] = {}
    for partition, asked in partitions.items():
        entry = topics.setdefault(
            partition.topic, FetchTopic(topic=partition.topic, topic_id=asked.topic_id, partitions=[])
        )
        entry.partitions.append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=asked.leader_epoch,
                fetch_offset=asked.offset,
                partition_max_bytes=asked.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(partitions: dict[TopicPartition, Asked]) -> list[ForgottenTopic]:
    topics: dict[str, ForgottenTopic] = {}
    for partition, asked in partitions.items():
        entry = topics.setdefault(
            partition.topic, ForgottenTopic(topic=partition.topic, topic_id=asked.topic_id, partitions=[])
        )
        entry.partitions.append(partition.partition)
    return list(topics.values())
