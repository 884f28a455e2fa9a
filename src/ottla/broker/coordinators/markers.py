"""The markers that end a transaction in the partitions it wrote to."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.network.backlog import Budget
from ottla.core.log.producers import AppendOrigin
from ottla.core.metadata.names import CONSUMER_OFFSETS
from ottla.core.runtime.shard import ProducerStamp
from ottla.core.transactions.transaction import ProducerIdentity, TopicPartition
from ottla.kernel import NO_PRODUCER_ID, ControlType, build_end_txn_marker
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node


_MARKER_COST: Final = 16
"""Writing a marker costs as much budget as reading this many elements."""


class TxnMarker(NamedTuple):
    producer: ProducerIdentity
    committed: bool
    coordinator_epoch: int
    transaction_version: int

    def check(self) -> None:
        """Raises Refused if no transaction can have these values: the marker would end no transaction."""
        producer_id, epoch = self.producer
        if producer_id == NO_PRODUCER_ID:
            raise Refused(Error.INVALID_PRODUCER_ID_MAPPING, "a marker of no producer")
        if epoch < 0:
            raise Refused(
                Error.INVALID_PRODUCER_EPOCH, f"a marker of producer {producer_id} with epoch {epoch}, less than 0"
            )
        if self.transaction_version < 0:
            raise Refused(Error.INVALID_REQUEST, f"there is no transaction version {self.transaction_version}")


def write_marker(node: "Node", marker: TxnMarker, where: TopicPartition) -> "asyncio.Future[Refused | None] | None":
    """Append a marker to a partition led here. Returns None if the marker is committed, otherwise a future. The future
    is done when the marker is committed (result None), or when it never will be (the result is the reason).

    Raises Refused if the marker may not, or cannot, be written.

    The group coordinator itself writes markers to `__consumer_offsets`, so that the offsets of the transaction can be
    seen as soon as the marker is acknowledged (KAFKA-17507).
    """
    topic, index = where
    if topic == CONSUMER_OFFSETS:
        marker.check()
        return _end_in_groups(node, marker, index)
    partition = node.partition(topic, index)
    marker.check()
    batch = build_end_txn_marker(
        ControlType.COMMIT if marker.committed else ControlType.ABORT,
        marker.coordinator_epoch,
        timestamp=node.clock.wall_ms(),
        producer_id=marker.producer.producer_id,
        producer_epoch=marker.producer.epoch,
    )
    appended = partition.append(
        memoryview(bytearray(batch)),
        acks=-1,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=marker.transaction_version,
    )
    return partition.committed(partition.leader_epoch, appended.last_offset + 1)


async def write_markers(
    node: "Node", marker: TxnMarker, partitions: Iterable[TopicPartition], budget: Budget
) -> dict[TopicPartition, Refused | None]:
    """Append the marker to partitions led here and wait until it is committed in each. Returns None for each partition,
    or the reason why the marker is not committed there. Partitions with the same error share one reason, because a
    request may name very many."""
    outcomes: dict[TopicPartition, Refused | None] = {}
    reasons: dict[Error, Refused] = {}
    appended: dict[TopicPartition, asyncio.Future[Refused | None] | None] = {}
    for where in partitions:
        try:
            appended[where] = write_marker(node, marker, where)
        except Refused as refusal:
            outcomes[where] = reasons.setdefault(refusal.error, refusal.with_traceback(None))
        if budget.is_spent(_MARKER_COST):
            await budget.give_way()
    for where, done in appended.items():
        outcomes[where] = None if done is None else await done
        if budget.is_spent():
            await budget.give_way()
    return outcomes


def _end_in_groups(node: "Node", marker: TxnMarker, index: int) -> "asyncio.Future[Refused | None] | None":
    try:
        return node.groups.end_transaction(
            index,
            ProducerStamp(*marker.producer),
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            refused=_as_leader,
        )
    except Refused as refusal:
        raise _as_leader(refusal) from None


def _as_leader(refusal: Refused) -> Refused:
    """Turn a refusal of a group coordinator into the error of a partition leader, after which the marker is sent
    again."""
    is_not_ready = refusal.error in _NOT_READY
    return Refused(Error.NOT_LEADER_OR_FOLLOWER, refusal.text) if is_not_ready else refusal


_NOT_READY = (Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR)
