"""The transactions of a producer: all records of one become visible, or none.

    async with Producer(client, transactional_id="copier") as producer:
        async with producer.transaction() as transaction:
            producer.send("copies", record.value)
            await transaction.send_offsets({partition: record.offset + 1}, GroupMetadata("copier"))

Rule 1: leaving the block commits; an exception in it aborts, and so does a commit that fails. The exception propagates.
Rule 2: `TransactionFailed` concerns this transaction: abort it and repeat it. `ProducerFenced` concerns the producer:
        another one has its transactional id. `EndUnknown`: request the same end again.
Rule 3: an abort drops unsent records, and waits for batches in flight, which must not arrive after the end.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, Self, TypeVar

from ottla.client.client import Client
from ottla.client.core.accumulator import Batch
from ottla.client.core.errors import EndUnknown, Misused, ProducerFenced, TransactionFailed
from ottla.client.core.identities import Identities
from ottla.client.core.names import GroupMetadata
from ottla.client.core.transaction import Phase, ProducerIdentity, TransactionState
from ottla.client.transaction_requests import Offsets, TransactionRequests
from ottla.observe.trace import warn
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.errors import Error

T = TypeVar("T")

PRODUCE_V1: Final = 11
"""Last version of Produce with which the broker does not add partitions to the transaction."""
_FENCING: Final = (Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH, Error.INVALID_PRODUCER_ID_MAPPING)
"""Fencing errors from a coordinator. From a partition leader an old epoch may also mean that the transaction timed
out."""


class Outbox(Protocol):
    """The producer as its transactions use it."""

    async def flush(self) -> None: ...

    async def discard(self, reason: ClientError) -> None: ...


class Transactions:
    """The transactions of one producer."""

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
        """Acquire the transactional id: fences its previous owner and aborts its open transaction."""
        if self._state.phase is Phase.NEW:
            await self._init(None)

    def begin(self) -> None:
        self._state.begin()

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Commit a group's offsets with the transaction; each is the offset of the next record to read."""
        self._state.check_open()
        self._state.request_sent()
        await self._asked(self._send_offsets(offsets, group))

    async def commit(self) -> None:
        """Raises TransactionFailed if a record was not delivered; then the transaction can only be aborted."""
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
        """Abort an open transaction if possible; otherwise the coordinator does it after the time-out."""
        if self._state.may_abort:
            try:
                await self.abort()
            except ClientError as error:
                warn("client.transaction_left", transactional_id=self.transactional_id, reason=error)

    # Called by the producer.

    def check_open(self) -> None:
        self._state.check_open()

    async def admit(self, batches: Sequence[Batch]) -> None:
        """Called before batches are sent: adds their partitions at the coordinator, unless the broker does it."""
        self._state.request_sent()
        wanted = [batch.partition for batch in batches]
        if self._state.to_enlist(wanted):
            async with self._enlisting:
                missing = self._state.to_enlist(wanted)
                if missing:
                    await self._asked(self._ask.add_partitions(self._identity, missing))
                    self._state.enlisted(missing)

    def lost(self, error: ClientError) -> None:
        """Called when records were not delivered, or it is unknown whether they were: fails the transaction."""
        self._state.lost_batch = True
        self._state.failed(error)

    @property
    def produce_version_max(self) -> int | None:
        return None if self._state.is_version_2 else PRODUCE_V1

    # Requests.

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
        after = await self._asked(self._request_end(commit=commit), ends="commit" if commit else "abort")
        if self._state.must_renew:
            await self._init(after)
            return
        if after != self._identity:
            self._identities.restart(after)
        self._state.ended(after)

    async def _request_end(self, *, commit: bool) -> ProducerIdentity:
        """Request the end; returns the producer's next identity."""
        state, before = self._state, self._identity
        if not state.must_end:
            return before
        try:
            return await self._ask.end(before, commit=commit, is_version_2=state.is_version_2)
        except Declined as error:
            if error.error is Error.INVALID_TXN_STATE and not commit and state.must_renew:
                return before  # No request that would have opened the transaction arrived.
            raise

    async def _asked(self, asking: Coroutine[Any, Any, T], *, ends: str = "") -> T:
        """Await a response. An error is translated to its meaning for the transaction. `ends`: the request commits or
        aborts it."""
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
