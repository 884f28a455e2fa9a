"""The requests of a transactional producer to coordinators. All of them may be repeated, whatever the outcome
before."""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.client.client import Client
from ottla.client.coordinators import CoordinatorType, OneCoordinator
from ottla.client.core.names import GroupMetadata, TopicPartition
from ottla.client.core.transaction import ProducerIdentity
from ottla.client.group_offsets import Committed
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.wire.errors import Error

_FEATURE: Final = "transaction.version"
_EPOCH_PER_TRANSACTION: Final = 2
_PARTITIONS_OF_CLIENTS: Final = 3  # Later versions of AddPartitionsToTxn are for brokers.
_END_V1, _OFFSETS_V1 = 4, 4
"""Last versions of EndTxn and of TxnOffsetCommit before version 2."""


Offsets = Mapping[TopicPartition, int | Committed]


class TransactionRequests:
    """The requests of one transactional producer."""

    def __init__(self, client: Client, transactional_id: str) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._coordinator = OneCoordinator(client, CoordinatorType.TRANSACTION, transactional_id)
        self._groups: dict[str, OneCoordinator] = {}

    @property
    def subject(self) -> str:
        return self._coordinator.subject

    async def init(self, timeout_ms: int, expected: ProducerIdentity | None) -> tuple[ProducerIdentity, bool]:
        """The producer's identity, and whether the cluster uses transaction version 2."""
        request = InitProducerIdRequest(
            transactional_id=self._transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1 if expected is None else expected.producer_id,
            producer_epoch=-1 if expected is None else expected.epoch,
        )
        connection, answer = await self._coordinator.call(request, lambda answer: answer.error_code)
        assert connection.versions is not None
        level = connection.versions.features.get(_FEATURE, 0)
        return ProducerIdentity(answer.producer_id, answer.producer_epoch), level >= _EPOCH_PER_TRANSACTION

    async def add_partitions(self, who: ProducerIdentity, partitions: Iterable[TopicPartition]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in _indexes_by_topic(partitions).items()
            ],
        )
        await self._coordinator.call(request, _worst_of_partitions, at_most=_PARTITIONS_OF_CLIENTS)

    async def add_offsets(self, who: ProducerIdentity, group_id: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            group_id=group_id,
        )
        await self._coordinator.call(request, lambda answer: answer.error_code)

    async def commit_offsets(
        self, who: ProducerIdentity, offsets: Offsets, group: GroupMetadata, *, is_version_2: bool
    ) -> None:
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for partition, place in sorted(offsets.items()):
            offset, leader_epoch, metadata = place if isinstance(place, Committed) else (place, -1, "")
            topic = topics.setdefault(partition.topic, TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[]))
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=offset,
                    committed_leader_epoch=leader_epoch,
                    committed_metadata=metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group.group_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=list(topics.values()),
        )
        coordinator = self._groups.get(group.group_id)
        if coordinator is None:
            coordinator = OneCoordinator(self._client, CoordinatorType.GROUP, group.group_id)
            self._groups[group.group_id] = coordinator
        await coordinator.call(request, _worst_of_offsets, at_most=None if is_version_2 else _OFFSETS_V1)

    async def end(self, who: ProducerIdentity, *, commit: bool, is_version_2: bool) -> ProducerIdentity:
        """End the transaction; returns the producer's next identity."""
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            committed=commit,
        )
        at_most = None if is_version_2 else _END_V1
        _, answer = await self._coordinator.call(request, lambda answer: answer.error_code, at_most=at_most)
        return ProducerIdentity(answer.producer_id, answer.producer_epoch) if is_version_2 else who


def _indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def _worst_of_partitions(answer: AddPartitionsToTxnResponse) -> int:
    """The first error that has a cause: if one partition is refused, the others have OPERATION_NOT_ATTEMPTED."""
    return _worst(
        one.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
        if one.partition_error_code != Error.OPERATION_NOT_ATTEMPTED
    )


def _worst_of_offsets(answer: TxnOffsetCommitResponse) -> int:
    return _worst(one.error_code for topic in answer.topics for one in topic.partitions)


def _worst(codes: Iterable[int]) -> int:
    return next((code for code in codes if code), Error.NONE)
