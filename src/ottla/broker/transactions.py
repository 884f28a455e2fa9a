"""The coordinator of transactions on this broker: the shards of `__transaction_state`, and what they set in motion.

Rule 1: markers are written when the decision to end a transaction is committed, never before.
Rule 2: a transaction is completed when every partition that it wrote to has its marker or is gone. Until then writing
        is tried again, by whoever coordinates it. A partition that has seen a later epoch of the producer takes no
        marker of this one: what a power loss took from the coordinator's log is known there. Kafka's coordinator gives
        such a transactional id up, and its producers are told CONCURRENT_TRANSACTIONS for ever.
Rule 3: each transactional id has one task at most that ends its transactions.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.coordinator import Coordinator
from ottla.broker.markers import Marker, write_marker
from ottla.config import (
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS,
    ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS,
    REQUEST_TIMEOUT_MS,
    TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS,
    TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)
from ottla.core.coordination import Decision, RecordTypes
from ottla.core.metadata.features import TRANSACTION_VERSION
from ottla.core.metadata.names import TRANSACTION_STATE
from ottla.core.transactions.shard import Markers, ProducerIdWanted, Rules, TransactionShard
from ottla.core.transactions.transaction import EPOCH_PER_TRANSACTION, ProducerIdentity, TopicPartition
from ottla.observe.trace import trace, warn
from ottla.wire.errors import Error, Refused
from ottla.wire.records import transactions as records

if TYPE_CHECKING:
    from ottla.broker.node import Node

R = TypeVar("R")

_RETRY_S, _RETRY_S_MAX = 0.1, 5.0
_LEFT = (Error.TRANSACTION_COORDINATOR_FENCED, Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS)
"""Another coordinator has the transactional id, or will have: this one has nothing more to say about it."""


def check_name(transactional_id: str) -> None:
    if not transactional_id:
        raise Refused(Error.INVALID_REQUEST, "a transactional id may not be empty")


def told_to_writer(error: Error, *, knows_abortable: bool) -> Error:
    """What a client is told whose records or offsets were not admitted to its transaction.

    Fencing has the name that writing always had for it; and `knows_abortable` says that the client's version has the
    error after which it can abort and go on.
    """
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH
    if error is Error.TRANSACTION_ABORTABLE and not knows_abortable:
        return Error.INVALID_TXN_STATE
    return error


class Transactions:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self.coordinator: Coordinator[TransactionShard] = Coordinator(
            node,
            TRANSACTION_STATE,
            RecordTypes(records),
            lambda _index, epoch: TransactionShard(epoch, self._rules, self._on_prepared),
            load_bytes=node.config[TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE],
            commit_timeout_ms=node.config[REQUEST_TIMEOUT_MS],
        )
        self._prepared: dict[str, None] = {}
        self._ending: dict[str, None] = {}

    def _rules(self) -> Rules:
        config = self._node.config
        return Rules(
            self._node.metadata.image.features.get(TRANSACTION_VERSION, 0),
            config[TRANSACTION_MAX_TIMEOUT_MS],
            config[TRANSACTIONAL_ID_EXPIRATION_MS],
            config[TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS],
            config[TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS],
        )

    async def decide(self, transactional_id: str, handle: Callable[[TransactionShard, int], Decision[R]]) -> R:
        """The reply once it is committed; with a new producer id where the decision needs one."""
        try:
            return await self.coordinator.decide(transactional_id, lambda shard, now_ms, _: handle(shard, now_ms))
        except ProducerIdWanted:
            producer_id = await self._node.metadata.producer_ids.next()

        def handle_with_id(shard: TransactionShard, now_ms: int) -> Decision[R]:
            shard.spare_producer_ids.append(producer_id)
            return handle(shard, now_ms)

        return await self.coordinator.decide(transactional_id, lambda shard, now_ms, _: handle_with_id(shard, now_ms))

    async def read(self, transactional_id: str, look: Callable[[TransactionShard], R]) -> R:
        seen = self.coordinator.read(transactional_id, lambda shard, _: look(shard))
        return await seen if isinstance(seen, asyncio.Future) else seen

    async def stock_producer_ids(self) -> None:
        """For producers that may time out in their last epoch: nobody asks then, so an id must be there before."""
        wanting = [
            shard for shard in await self.coordinator.read_all(lambda shard, _: shard) if shard.wants_producer_id
        ]
        for shard in wanting:
            shard.spare_producer_ids.append(await self._node.metadata.producer_ids.next())

    # Writing in a transaction.

    async def admit(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition], *, adds: bool
    ) -> dict[TopicPartition, Error]:
        """Whether a producer's records may be written to partitions: those that may not, and why.

        `adds`: clients of version 2 leave it to the broker to add them to the transaction; others have done it.
        """
        check_name(transactional_id)
        wanted = tuple(partitions)
        if not adds:
            errors = await self.read(
                transactional_id, lambda shard: shard.verify_partitions(transactional_id, producer, wanted)
            )
            return {partition: error for partition, error in errors.items() if error}
        config, clock = self._node.config, self._node.clock
        until_ms = clock.monotonic_ms() + min(
            config[ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS], config[REQUEST_TIMEOUT_MS]
        )
        while True:
            try:
                await self.decide(
                    transactional_id,
                    lambda shard, now_ms: shard.add_partitions(
                        transactional_id, producer, wanted, EPOCH_PER_TRANSACTION, now_ms
                    ),
                )
            except Refused as refusal:
                # The markers of the transaction before are on their way: sending records again costs more than waiting.
                if refusal.error is not Error.CONCURRENT_TRANSACTIONS or clock.monotonic_ms() >= until_ms:
                    raise
                await asyncio.sleep(config[ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS] / 1000)
            else:
                return {}

    # Ending transactions.

    def _on_prepared(self, transactional_id: str) -> None:
        self._prepared[transactional_id] = None
        if transactional_id not in self._ending:
            self._ending[transactional_id] = None
            self._node.spawn(self._end_prepared(transactional_id))

    async def _end_prepared(self, transactional_id: str) -> None:
        try:
            while self._prepared.pop(transactional_id, transactional_id) is None:
                await self._end(transactional_id)
        finally:
            self._ending.pop(transactional_id, None)

    async def _end(self, transactional_id: str) -> None:
        """Write the markers and complete the transaction, unless someone else coordinates it meanwhile."""
        wait_s = _RETRY_S
        while True:
            try:
                markers = await self.read(transactional_id, lambda shard: shard.markers(transactional_id))
                if markers is None:
                    return
                await self._write_markers(transactional_id, markers)
            except Refused as refusal:
                if refusal.error in _LEFT:
                    trace("transaction.left", transactional_id=transactional_id, reason=refusal.text)
                    return
                warn("transaction.not_ended", transactional_id=transactional_id, reason=refusal.text)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _RETRY_S_MAX)

    async def _write_markers(self, transactional_id: str, markers: Markers) -> None:
        """Those that are lacking, and complete the transaction. Raises what hindered one, when the others are there."""
        marker = Marker(markers.producer, markers.committed, markers.coordinator_epoch, markers.transaction_version)
        hindrance: Refused | None = None
        appended: list[tuple[TopicPartition, asyncio.Future[Refused | None] | None]] = []
        written: list[TopicPartition] = []
        outdated: list[TopicPartition] = []
        for partition in markers.partitions:
            try:
                # Where a topic was deleted there is nothing to end.
                exists = self._node.metadata.image.partition(*partition) is not None
                appended.append((partition, write_marker(self._node, marker, partition) if exists else None))
            except Refused as refusal:
                if refusal.error is Error.INVALID_PRODUCER_EPOCH:
                    warn("transaction.outdated", transactional_id=transactional_id, reason=refusal.text)
                    outdated.append(partition)
                else:
                    hindrance = refusal
        for partition, done in appended:
            if done is None or (lost := await done) is None:
                written.append(partition)
            else:
                hindrance = lost
        await self.decide(
            transactional_id,
            lambda shard, now_ms: shard.markers_written(
                transactional_id, marker.producer, written, now_ms, outdated=outdated
            ),
        )
        if hindrance is not None:
            raise hindrance
