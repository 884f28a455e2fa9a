"""The coordinator of transactions on this broker: the shards of `__transaction_state`, and the tasks that end
transactions.

Rule 1: markers are written when the decision to end a transaction is committed, never before.
Rule 2: a transaction is completed when every partition that it wrote to has its marker or is deleted. Until then its
        coordinator sends the markers again. A partition that has seen a later producer epoch refuses the marker:
        the coordinator's log has lost that epoch in a power loss. The marker counts as written then. Kafka gives up
        such a transactional id, and its producers get CONCURRENT_TRANSACTIONS for ever.
Rule 3: each transactional id has one task at most that ends its transactions.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.coordinators.coordinator import Coordinator
from ottla.broker.coordinators.markers import TxnMarker
from ottla.config import (
    REQUEST_TIMEOUT_MS,
    TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS,
    TRANSACTION_MAX_TIMEOUT_MS,
    TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS,
    TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE,
    TRANSACTIONAL_ID_EXPIRATION_MS,
)
from ottla.core.metadata.features import TRANSACTION_VERSION
from ottla.core.metadata.names import TRANSACTION_STATE
from ottla.core.runtime.decision import Decision
from ottla.core.runtime.shard import RecordTypes
from ottla.core.transactions.shard import Markers, ProducerIdWanted, Rules, TransactionShard
from ottla.core.transactions.transaction import ProducerIdentity, TopicPartition
from ottla.observe.trace import trace, warn
from ottla.wire.errors import Error, Refused
from ottla.wire.records import transactions as records

if TYPE_CHECKING:
    from ottla.broker.node import Node

R = TypeVar("R")

_RETRY_S, _RETRY_S_MAX = 0.1, 5.0
_LEFT = (Error.TRANSACTION_COORDINATOR_FENCED, Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS)
"""Errors that mean that another coordinator has the transactional id or will have it. This one stops its work on it."""


def check_name(transactional_id: str) -> None:
    if not transactional_id:
        raise Refused(Error.INVALID_REQUEST, "a transactional id may not be empty")


class TransactionCoordinator:
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
        """Decide by `handle`; returns the reply when it is committed. If the decision needs a producer id, one is
        fetched first."""
        try:
            return await self.coordinator.decide(transactional_id, lambda shard, now_ms, _: handle(shard, now_ms))
        except ProducerIdWanted:
            producer_id = await self._node.producer_ids.next()

        def handle_with_id(shard: TransactionShard, now_ms: int) -> Decision[R]:
            shard.spare_producer_ids.append(producer_id)
            return handle(shard, now_ms)

        return await self.coordinator.decide(transactional_id, lambda shard, now_ms, _: handle_with_id(shard, now_ms))

    async def read(self, transactional_id: str, look: Callable[[TransactionShard], R]) -> R:
        seen = self.coordinator.read(transactional_id, lambda shard, _: look(shard))
        return await seen if isinstance(seen, asyncio.Future) else seen

    async def stock_producer_ids(self) -> None:
        """Fetch ids for producers that may time out in their last epoch: no request fetches a new id then."""
        wanting = [
            shard for shard in await self.coordinator.read_all(lambda shard, _: shard) if shard.wants_producer_id
        ]
        for shard in wanting:
            shard.spare_producer_ids.append(await self._node.producer_ids.next())

    # Partitions of a transaction.

    async def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Error]:
        """The partitions that are not part of the transaction, and why."""
        wanted = tuple(partitions)
        errors = await self.read(
            transactional_id, lambda shard: shard.verify_partitions(transactional_id, producer, wanted)
        )
        return {partition: error for partition, error in errors.items() if error}

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        client_version: int,
    ) -> None:
        """Returns when the partitions are part of the transaction. Raises Refused if they cannot be."""
        await self.decide(
            transactional_id,
            lambda shard, now_ms: shard.add_partitions(transactional_id, producer, partitions, client_version, now_ms),
        )

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
        """Write the markers and complete the transaction. Stops if another broker has become its coordinator."""
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
        """Write the missing markers, and complete the transaction. If a marker cannot be written, the others still are;
        then its refusal is raised."""
        marker = TxnMarker(markers.producer, markers.committed, markers.coordinator_epoch, markers.transaction_version)
        image = self._node.metadata.image
        there = [one for one in markers.partitions if image.partition(*one) is not None]
        # A deleted partition needs no marker.
        written = [one for one in markers.partitions if image.partition(*one) is None]
        outdated: list[TopicPartition] = []
        hindrance: Refused | None = None
        for partition, refusal in (await self._node.peers.write_markers(marker, there)).items():
            if refusal is None:
                written.append(partition)
            elif refusal.error is Error.INVALID_PRODUCER_EPOCH:
                warn("transaction.outdated", transactional_id=transactional_id, reason=refusal.text)
                outdated.append(partition)
            else:
                hindrance = refusal
        await self.decide(
            transactional_id,
            lambda shard, now_ms: shard.markers_written(
                transactional_id, marker.producer, written, now_ms, outdated=outdated
            ),
        )
        if hindrance is not None:
            raise hindrance
