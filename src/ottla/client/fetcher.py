"""Fetches records for the cursors of a consumer in the background.

Rule 1: one fetch per leader is in flight, on its own connection, for those of its partitions that need more records.
Rule 2: a partition that still has unread records is left out of a fetch. Such a fetch waits at the broker only briefly:
        the partition may need more soon, and responses come in the order of requests.
Rule 3: a response is used only for cursors that have not moved since the request.
Rule 4: a retriable error is retried, with growing back-off, until the client's `api_timeout_ms`. After that, and for
        any other error, the cursor gets the error and the consumer raises it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple

from ottla.client.client import Client
from ottla.client.core.cursors import Cursor, Cursors
from ottla.client.core.errors import NoLeader
from ottla.client.core.names import TopicPartition
from ottla.client.core.session import FetchSession, PartitionFetch, SessionRequest
from ottla.client.fetch_requests import (
    WITHOUT_SESSION,
    FetchLimits,
    aborted_in,
    fetch_request,
    is_out_of_range,
    refusal_in,
    send_fetch,
)
from ottla.kernel import RecordReader
from ottla.rpc.addresses import Address
from ottla.rpc.backoff import Backoff
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.api.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.wire.errors import Error
from ottla.wire.types import NO_UUID

SHORT_WAIT_MS: Final = 20
RETRY: Final = Backoff(first_ms=50, max_ms=1_000)
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
            self._runner.result()  # The task ended by a defect: raise it to the caller.

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
                elif cursor.not_before_ms <= now:  # `_refresh` has not failed for it just now.
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
            request = self._request(session.request(wanted), leader, len(cursors))
            by_name = any(asked.topic_id == NO_UUID for asked in wanted.values())
            answer, broker = await send_fetch(self._client, leader, request, by_name=by_name, subject="fetch")
            self._answered(session, wanted, answer, broker)
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

    def _asked(self, cursor: Cursor) -> PartitionFetch:
        known = self._client.cluster.partition(cursor.partition)
        return PartitionFetch(
            self._client.cluster.topic_id(cursor.partition.topic),
            cursor.fetch_offset,
            _NO_EPOCH if known is None else known.leader_epoch,
            cursor.max_bytes,
        )

    def _request(self, session: SessionRequest, leader: int, asked: int) -> FetchRequest:
        led = sum(1 for cursor in self._cursors if self._client.cluster.leader(cursor.partition) == leader)
        wait_ms = self._rules.wait_ms_max if asked == led else min(SHORT_WAIT_MS, self._rules.wait_ms_max)
        return fetch_request(
            session.partitions,
            FetchLimits(wait_ms, self._rules.bytes_min, self._rules.bytes_max),
            committed=self._rules.committed,
            session_id=session.session_id,
            session_epoch=session.epoch if self._rules.sessions else WITHOUT_SESSION,
            forgotten=session.forgotten,
        )

    def _answered(
        self,
        session: FetchSession,
        wanted: dict[TopicPartition, PartitionFetch],
        answer: FetchResponse,
        broker: Address,
    ) -> None:
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
        if is_out_of_range(data):
            self._out_of_range(cursor, data, broker)
            return
        refusal = refusal_in(data, cursor.partition, broker)
        if refusal is not None:
            self._troubled(cursor, refusal)
            return
        self._failures.pop(cursor.partition, None)
        cursor.high_watermark = data.high_watermark
        cursor.last_stable_offset = data.last_stable_offset
        cursor.log_start_offset = data.log_start_offset
        if data.records:
            cursor.take_in(RecordReader(data.records, cursor.fetch_offset, aborted_in(data)))
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
        """Retry after a back-off. If that cannot help or takes too long, give the error to the consumer."""
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
