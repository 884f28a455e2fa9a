"""The markers that end a transaction in the partitions it wrote to."""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from ottla.core.coordination import ProducerStamp
from ottla.core.log.producers import Origin
from ottla.core.metadata.names import CONSUMER_OFFSETS
from ottla.core.transactions.transaction import ProducerIdentity, TopicPartition
from ottla.kernel import NO_PRODUCER_ID, ControlType, build_end_txn_marker
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node


class Marker(NamedTuple):
    producer: ProducerIdentity
    committed: bool
    coordinator_epoch: int
    transaction_version: int

    def check(self) -> None:
        """Raises Refused for what no transaction can have: such a marker would stay in the log for nothing."""
        producer_id, epoch = self.producer
        if producer_id == NO_PRODUCER_ID:
            raise Refused(Error.INVALID_PRODUCER_ID_MAPPING, "a marker of no producer")
        if epoch < 0:
            raise Refused(
                Error.INVALID_PRODUCER_EPOCH, f"a marker of producer {producer_id} with epoch {epoch}, less than 0"
            )
        if self.transaction_version < 0:
            raise Refused(Error.INVALID_REQUEST, f"there is no transaction version {self.transaction_version}")


def write_marker(node: "Node", marker: Marker, where: TopicPartition) -> "asyncio.Future[Refused | None] | None":
    """Append it at once; what is returned is done when it counts, or never will: then it tells why.

    Refused if it may not, or cannot, be written.

    The offsets that a transaction commits for a group can be seen when the marker is acknowledged (KAFKA-17507): the
    group's coordinator writes it itself.
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
        origin=Origin.COORDINATOR,
        transaction_version=marker.transaction_version,
    )
    return partition.synced(appended.last_offset + 1) if partition.must_sync else None


def _end_in_groups(node: "Node", marker: Marker, index: int) -> "asyncio.Future[Refused | None] | None":
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
    """In words from which a coordinator of transactions knows how to go on."""
    is_not_ready = refusal.error in _NOT_READY
    return Refused(Error.NOT_LEADER_OR_FOLLOWER, refusal.text) if is_not_ready else refusal


_NOT_READY = (Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR)
