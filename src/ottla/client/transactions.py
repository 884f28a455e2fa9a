"""The transactions of a producer: what it sends in one counts whole or not at all.

    async with Producer(client, transactional_id="copier") as producer:
        async with producer.transaction() as transaction:
            producer.send("copies", record.value)
            await transaction.send_offsets({partition: record.offset + 1}, GroupMetadata("copier"))

Rule 1: leaving the block commits; an exception in it aborts, and so does a commit that fails. What was raised goes on.
Rule 2: `TransactionFailed` is about this transaction: aborted, it may be done again. `ProducerFenced` is about the
        producer: somebody else has its transactional id. `EndUnknown`: ask for the same end again.
Rule 3: an abort drops what was not sent, and waits for what is under way: it must not arrive after the end.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, Self, TypeVar

from ottla.client.client import Client
from ottla.client.core.accumulator import Batch
from ottla.client.core.errors import ClientError, Declined, EndUnknown, Misused, ProducerFenced, TransactionFailed
from ottla.client.core.identities import Identities
from ottla.client.core.names import GroupMetadata
from ottla.client.core.transaction import Phase, ProducerIdentity, TransactionState
from ottla.client.transaction_requests import Offsets, TransactionRequests
from ottla.observe.trace import warn
from ottla.wire.errors import Error

T = TypeVar("T")

PRODUCE_V1: Final = 11
"""Last version of Produce with which the broker does not enlist partitions."""
_FENCING: Final = (Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH, Error.INVALID_PRODUCER_ID_MAPPING)
"""From a coordinator. Where records are written an old epoch may be that of a transaction which took too long."""


class Outbox(Protocol):
    """What transactions ask of their producer."""

    async def flush(self) -> None: ...

    async def discard(self, reason: ClientError) -> None: ...


class Transactions:
    def __init__(
        self, client: Client, outbox: Outbox, identities: Identities, transactional_id: str, timeout_ms: int
    ) -> None:
        self.transactional_id = transactional_id
        self._outbox = outbox
        self._identities = identities
        self._timeout_ms = timeout_ms
        self._ask = TransactionRequests(client, transactional_id)
        self._state = TransactionState(self._ask.subject)
        self._enlisting = asyncio.Lock()

    async def init(self) -> None:
        """Take the transactional id: fence who had it, and have ended what it left open."""
        if self._state.phase is Phase.NEW:
            await self._init(None)

    def begin(self) -> None:
        self._state.begin()

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit offsets of a group with the transaction: each is that of the next record to be read."""
        self._state.check_open()
        self._state.told()
        await self._asked(self._send_offsets(offsets, group))

    async def commit(self) -> None:
        """Raises TransactionFailed if anything was not delivered; the transaction can only be aborted then."""
        self._state.prepare_commit()
        await self._outbox.flush()
        self._state.decide_commit()
        await self._end(commit=True)

    async def abort(self) -> None:
        self._state.prepare_abort()
        await self._outbox.discard(Misused(f"{self._state.subject}: the transaction was aborted"))
        await self._end(commit=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        await self.init()
        self.begin()
        try:
            yield self
            if self._state.phase is not Phase.READY:
                await self.commit()
        except BaseException:
            if self._state.may_abort:
                await self.abort()
            raise

    async def close(self) -> None:
        """Abort what is open, if that can be done; otherwise the coordinator does it when the time is over."""
        if self._state.may_abort:
            try:
                await self.abort()
            except ClientError as error:
                warn("client.transaction_left", transactional_id=self.transactional_id, reason=error)

    # What the producer asks and tells.

    def check_open(self) -> None:
        self._state.check_open()

    async def admit(self, batches: Sequence[Batch]) -> None:
        """Batches are about to be sent: the coordinator must know first, where it does not find out by itself."""
        self._state.told()
        wanted = [batch.partition for batch in batches]
        if self._state.to_enlist(wanted):
            async with self._enlisting:
                missing = self._state.to_enlist(wanted)
                if missing:
                    await self._asked(self._ask.add_partitions(self._identity, missing))
                    self._state.enlisted(missing)

    def lost(self, error: ClientError) -> None:
        """Records that were taken will not be delivered, or nobody knows whether they were."""
        self._state.lost_batch = True
        self._state.failed(error)

    @property
    def produce_version_max(self) -> int | None:
        return None if self._state.is_version_2 else PRODUCE_V1

    # Asking.

    @property
    def _identity(self) -> ProducerIdentity:
        assert self._state.identity is not None
        return self._state.identity

    async def _init(self, expected: ProducerIdentity | None) -> None:
        identity, is_version_2 = await self._asked(self._ask.init(self._timeout_ms, expected))
        self._state.initialized(identity, is_version_2=is_version_2)
        self._identities.restart(identity)

    async def _send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        is_version_2 = self._state.is_version_2
        if not is_version_2:
            await self._ask.add_offsets(self._identity, group.group_id)
        await self._ask.commit_offsets(self._identity, offsets, group, is_version_2=is_version_2)

    async def _end(self, *, commit: bool) -> None:
        after = await self._asked(self._told_end(commit=commit), ends="commit" if commit else "abort")
        if self._state.must_renew:
            await self._init(after)
            return
        if after != self._identity:
            self._identities.restart(after)
        self._state.ended(after)

    async def _told_end(self, *, commit: bool) -> ProducerIdentity:
        """Whom the producer goes on as."""
        state, before = self._state, self._identity
        if not state.must_end:
            return before
        try:
            return await self._ask.end(before, commit=commit, is_version_2=state.is_version_2)
        except Declined as error:
            if error.error is Error.INVALID_TXN_STATE and not commit and state.must_renew:
                return before  # What was to open the transaction never arrived.
            raise

    async def _asked(self, asking: Coroutine[Any, Any, T], *, ends: str = "") -> T:
        """The answer; an error tells what it means for the transaction. `ends`: what was asked for decides it."""
        state = self._state
        try:
            return await asking
        except ClientError as error:
            code = error.error if isinstance(error, Declined) else None
            if code in _FENCING:
                state.fenced(error)
                raise ProducerFenced(state.subject, error) from error
            if ends and (error.retriable or error.unknown_outcome):
                raise EndUnknown(state.subject, ends, error) from error
            if state.phase in (Phase.OPEN, Phase.COMMITTING):
                state.failed(error)
                raise TransactionFailed(state.subject, error) from error
            raise
