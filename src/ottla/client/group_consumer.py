"""A consumer that is a member of a group (KIP-848: Kafka 4.0 or later, and Ottla).

    async with GroupConsumer(client, "billing", ["orders"]) as consumer:
        while True:
            for record in await consumer.poll():
                ...
            await consumer.commit()

Rule 1: the records of a `poll` count as processed when `poll` is called again, and may be committed from then on;
        `commit` commits all of them.
Rule 2: the assignment changes inside `poll` only, so a partition is never lost while its records are processed. Before
        a partition is released, its processed records are committed.
Rule 3: heartbeats run independently of the caller. A caller that processes records for longer than
        `rebalance_timeout_ms` after a revocation is removed from the group.
Rule 4: a removed consumer raises `MembershipLost` once, and joins again only after that: a consumer that does not poll
        would withhold partitions from the others. They own its old ones by then, and read uncommitted records again.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, Self

from ottla.client.client import RETRY, Client
from ottla.client.consumer import BEGINNING, Consumer, Received, Start
from ottla.client.coordinators import CoordinatorType, OneCoordinator
from ottla.client.core.errors import MembershipLost
from ottla.client.core.membership import OUT, Membership, Next, Slot
from ottla.client.core.names import GroupMetadata, TopicPartition
from ottla.client.group_offsets import commit_offsets, settled_offsets
from ottla.observe.trace import trace, warn
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.errors import Error

_STALE_RETRIES: Final = 10
_STALE: Final = (Error.STALE_MEMBER_EPOCH, Error.UNSTABLE_OFFSET_COMMIT)


class GroupConsumer:
    """A consumer that is a member of a group."""

    def __init__(
        self,
        client: Client,
        group_id: str,
        topics: Iterable[str],
        *,
        start: Start = BEGINNING,
        instance_id: str | None = None,
        rack_id: str | None = None,
        rebalance_timeout_ms: int = 300_000,
        new_member_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        **options: Any,
    ) -> None:
        """`start` is where to begin in a partition without a committed offset. `options` are `Consumer`'s."""
        self._client = client
        self._topics = list(topics)
        self._start = start
        self._consumer = Consumer(client, reset=start, **options)
        self._coordinator = OneCoordinator(client, CoordinatorType.GROUP, group_id)
        self._member = Membership(
            group_id,
            new_member_id(),
            self._topics,
            instance_id=instance_id,
            rack_id=rack_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        self._names: dict[Slot, TopicPartition] = {}
        """The partitions being consumed."""
        self._finished: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._failure: ClientError | None = None
        self._wake = asyncio.Event()
        self._heart: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._heart = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the group. Nothing is committed: records that were finished and not committed are read again by
        others."""
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
            self._heart = None
            try:
                await self._coordinator.call(self._member.farewell(), lambda answer: answer.error_code)
            except ClientError as error:
                warn("client.group_not_left", group=self._member.group_id, reason=error)
        await self._consumer.close()

    @property
    def assignment(self) -> list[TopicPartition]:
        return self._consumer.assignment

    @property
    def is_settled(self) -> bool:
        """Whether this consumer has received its assignment, even an empty one, and consumes it."""
        return self._member.is_settled

    @property
    def metadata(self) -> GroupMetadata:
        """The member for offset commits inside a transaction."""
        member = self._member
        return GroupMetadata(member.group_id, member.epoch, member.member_id, member.instance_id)

    def position(self, partition: TopicPartition) -> int:
        return self._consumer.position(partition)

    async def poll(self, *, records_max: int = 500, timeout_ms: int = 1_000) -> list[Received]:
        """The next records; none if `timeout_ms` passes without any, or if the assignment changed."""
        if (failure := self._failure) is not None:
            if isinstance(failure, MembershipLost):
                self._failure = None
                self._drop(list(self._names))
                self._wake.set()
            raise failure
        self._note_finished()
        await self._reconcile()
        return await self._consumer.poll(records_max=records_max, timeout_ms=timeout_ms)

    async def commit(self) -> None:
        """Commit everything that `poll` returned."""
        self._note_finished()
        await self._commit(self._finished)

    def _note_finished(self) -> None:
        self._finished = {one: self._consumer.position(one) for one in self._consumer.assignment}

    async def _commit(self, positions: dict[TopicPartition, int]) -> None:
        news = {one: offset for one, offset in positions.items() if self._committed.get(one) != offset}
        for _ in range(_STALE_RETRIES):
            if not news:
                return
            outcomes = await commit_offsets(self._client, self._member.group_id, news, self.metadata)
            refused = [(one, refusal) for one, refusal in outcomes.items() if refusal is not None]
            for one in outcomes.keys() - dict(refused).keys():
                self._committed[one] = news.pop(one)
            if not refused:
                return
            error = refused[0][1]
            code = error.error if isinstance(error, Declined) else None
            if code in OUT:
                raise MembershipLost(self._coordinator.subject, error)
            if code not in _STALE:
                raise error
            # The group is at a later epoch, which the next heartbeat brings.
            await asyncio.sleep(RETRY.wait_ms(1, self._client.ports.random) / 1000)
        raise error

    # Changes of the assignment.

    async def _reconcile(self) -> None:
        member = self._member
        self._drop([slot for slot in self._names if slot not in member.owned])  # Lost.
        releasing = member.to_release
        if releasing:
            going = {self._names[slot] for slot in releasing if slot in self._names}
            try:
                await self._commit({one: offset for one, offset in self._finished.items() if one in going})
            except ClientError as error:
                warn("client.not_committed", group=member.group_id, partitions=sorted(map(str, going)), reason=error)
            self._drop(releasing)
            member.released(releasing)
            trace("client.partitions_released", group=member.group_id, partitions=sorted(map(str, going)))
        taking = member.to_take
        if taking:
            names = await self._named(taking)
            await self._begin(list(names.values()))
            self._names |= names
            member.took(names)
            self._drop([slot for slot in names if slot not in member.owned])  # Lost meanwhile.
            trace("client.partitions_taken", group=member.group_id, partitions=sorted(map(str, names.values())))
        if releasing or taking:
            self._wake.set()

    def _drop(self, slots: list[Slot]) -> None:
        names = [name for slot in slots if (name := self._names.pop(slot, None)) is not None]
        self._consumer.remove(names)
        for name in names:
            self._finished.pop(name, None)
            self._committed.pop(name, None)

    async def _named(self, slots: list[Slot]) -> dict[Slot, TopicPartition]:
        """The partitions whose topic is known by now; a new topic may take a moment."""
        topics = self._client.cluster.topics
        by_id = {topic.topic_id: name for name, topic in topics.items()}
        if any(slot.topic_id not in by_id for slot in slots):
            for name in self._topics:
                self._client.metadata.stale(name)
            await self._client.persist(lambda: self._client.metadata.refresh(self._topics))
            by_id = {topic.topic_id: name for name, topic in topics.items()}
        return {slot: TopicPartition(by_id[slot.topic_id], slot.partition) for slot in slots if slot.topic_id in by_id}

    async def _begin(self, partitions: list[TopicPartition]) -> None:
        found = (await settled_offsets(self._client, [self._member.group_id], partitions))[self._member.group_id]
        if isinstance(found, ClientError):
            raise found
        self._committed |= {one: found[one].offset for one in partitions if one in found}
        await self._consumer.add(
            {one: Start(offset=found[one].offset) if one in found else self._start for one in partitions}
        )

    # Heartbeats.

    async def _beat(self) -> None:
        clock, failures = self._client.ports.clock, 0
        while True:
            self._wake.clear()
            wait_ms = self._member.due_ms - clock.monotonic_ms()
            if wait_ms > 0 or self._failure is not None:
                await self._sleep(None if self._failure is not None else wait_ms)
                continue
            try:
                await self._heartbeat()
                failures = 0
            except ClientError as error:
                if not error.retriable:
                    self._failed(error)
                    return
                failures += 1
                self._member.unanswered(clock.monotonic_ms() + RETRY.wait_ms(failures, self._client.ports.random))

    async def _heartbeat(self) -> None:
        clock, member = self._client.ports.clock, self._member
        request = member.heartbeat(clock.monotonic_ms())
        try:
            _, answer = await self._coordinator.call_once(request, lambda answer: answer.error_code)
        except Declined as error:
            if error.error not in OUT:
                raise
            if member.is_out():
                self._failed(MembershipLost(self._coordinator.subject, error))
            return
        if member.answered(answer, clock.monotonic_ms()) is Next.RECONCILE:
            self._consumer.wake()

    async def _sleep(self, wait_ms: int | None) -> None:
        """Sleep until woken, or for `wait_ms`."""
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _failed(self, error: ClientError) -> None:
        """Report the error at the next poll."""
        self._failure = error
        self._consumer.wake()
