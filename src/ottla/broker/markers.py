"""The markers that end a transaction in the partitions it wrote to."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple

from ottla.core.coordination import ProducerStamp
from ottla.core.log.producers import Origin
from ottla.core.metadata.names import CONSUMER_OFFSETS
from ottla.core.transactions.transaction import ProducerIdentity, TopicPartition
from ottla.kernel import ControlType, build_end_txn_marker
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node


class Marker(NamedTuple):
    producer: ProducerIdentity
    committed: bool
    coordinator_epoch: int
    transaction_version: int


def write_marker(node: "Node", marker: Marker, where: TopicPartition) -> Awaitable[None] | None:
    """Append it at once; what is returned is done when it counts. Refused if it may not, or cannot, be written.

    The offsets that a transaction commits for a group can be seen when the marker is acknowledged (KAFKA-17507): the
    group's coordinator writes it itself.
    """
    topic, index = where
    if topic == CONSUMER_OFFSETS:
        return _end_in_groups(node, marker, index)
    partition = node.partition(topic, index)
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
    return _synced(partition.synced(appended.last_offset + 1)) if partition.must_sync else None


async def _synced(done: Awaitable[Refused | None]) -> None:
    refusal = await done
    if refusal is not None:
        raise refusal


async def _end_in_groups(node: "Node", marker: Marker, index: int) -> None:
    try:
        await node.groups.end_transaction(
            index,
            ProducerStamp(*marker.producer),
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
    except Refused as refusal:
        if refusal.error in _NOT_READY:
            # What a coordinator of transactions knows how to go on from.
            raise Refused(Error.NOT_LEADER_OR_FOLLOWER, refusal.text) from None
        raise


_NOT_READY = (Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR)
