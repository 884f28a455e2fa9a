"""Requests of a broker to the broker that leads a partition, or that coordinates a transactional id.

In a cluster that may be any broker; a single node calls itself. Callers use `ClusterPeers`, and need not know which
broker it is. A failure on the way is raised as Refused, with an error after which the caller retries.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ottla.broker.coordinators.markers import TxnMarker, write_markers
from ottla.broker.network.backlog import Budget
from ottla.core.transactions.transaction import EPOCH_PER_TRANSACTION, ProducerIdentity, TopicPartition
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node


class ClusterPeers(Protocol):
    async def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Error]:
        """Ask the coordinator of a transactional id whether partitions are part of its transaction. Returns the
        partitions that are not, with the error of each. Raises Refused if the coordinator cannot tell. Equals
        AddPartitionsToTxn with `verify_only`."""

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> None:
        """Let the coordinator of a transactional id add partitions to its transaction. Raises Refused if it does not.
        Equals AddPartitionsToTxn."""

    async def write_markers(
        self, marker: TxnMarker, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Refused | None]:
        """Let the leader of each partition write a marker; for partitions of `__consumer_offsets` that is the group
        coordinator. Returns when each marker is committed (None) or refused (the reason). Equals WriteTxnMarkers."""


class LocalPeers:
    """The peers of a single node: this broker leads and coordinates everything."""

    def __init__(self, node: "Node") -> None:
        self._node = node

    async def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Error]:
        return await self._node.transactions.verify_partitions(transactional_id, producer, partitions)

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> None:
        await self._node.transactions.add_partitions(transactional_id, producer, partitions, EPOCH_PER_TRANSACTION)

    async def write_markers(
        self, marker: TxnMarker, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Refused | None]:
        return await write_markers(self._node, marker, partitions, Budget(self._node.backlog))
