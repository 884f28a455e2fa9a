"""Administrative requests to a cluster.

Rule 1: a method that takes several items returns a result for each, a value or a `ClientError`, so that one failure
        does not hide the others. `settled` turns results into values, or raises the first error.
Rule 2: a request that changes the cluster is not repeated when its outcome is unknown; a read is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from ottla.client.client import Client
from ottla.client.configs import ConfigChange, ConfigEntry, Resource, alter_configs, describe_configs
from ottla.client.core.cluster import Broker, Topic
from ottla.client.core.names import TopicPartition
from ottla.client.group_offsets import Offsets, commit_offsets, committed_offsets, delete_offsets
from ottla.client.groups import GroupDescription, GroupListing, delete_groups, describe_groups, list_groups
from ottla.client.leaders import ask_leaders
from ottla.client.offsets import OffsetAt, list_offsets
from ottla.client.partition_producers import ProducerState, describe_producers, write_abort_marker
from ottla.client.transactions_admin import (
    ANY_DURATION,
    TransactionDescription,
    TransactionListing,
    describe_transactions,
    fence_producer,
    list_transactions,
)
from ottla.rpc.addresses import Address
from ottla.rpc.connection import BrokerConnection
from ottla.rpc.errors import ClientError, Declined, error_of, refusal_of
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic
from ottla.wire.api.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.errors import Error
from ottla.wire.types import NO_UUID

CLUSTER_DEFAULT: Final = -1
HIGH_WATERMARK: Final = -1

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; without numbers it gets the cluster's defaults."""

    name: str
    partitions: int = CLUSTER_DEFAULT
    replication_factor: int = CLUSTER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)  # Partition to brokers, leader first.


class CreatedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: int  # -1 from a broker that does not report it.
    replication_factor: int


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller: int
    brokers: list[Broker]


class Replica(NamedTuple):
    """A replica in a log directory of a broker."""

    partition: TopicPartition
    size: int
    lag: int
    future: bool  # It is being moved here from another directory.


class LogDir(NamedTuple):
    broker: int
    path: str
    error: Error
    total_bytes: int  # -1: not reported.
    usable_bytes: int
    replicas: list[Replica]


def settled(outcomes: Mapping[K, V | ClientError]) -> dict[K, V]:
    """The values if there is one for every key; else raises the first error."""
    values: dict[K, V] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, ClientError):
            raise outcome
        values[key] = outcome
    return values


class Admin:
    """An admin client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | ClientError]:
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=self._client.request_timeout_ms,
            validate_only=validate_only,
        )
        connection, answer = await self._change(request)
        assert isinstance(answer, CreateTopicsResponse)
        outcomes: dict[str, CreatedTopic | ClientError] = {}
        for result in answer.topics:
            error = error_of(result.error_code)
            self._client.metadata.stale(result.name)
            if error is Error.NONE:
                created = CreatedTopic(result.name, result.topic_id, result.num_partitions, result.replication_factor)
                outcomes[result.name] = created
            else:
                outcomes[result.name] = _declined(error, connection, f"topic {result.name}", result.error_message)
        return outcomes

    async def delete_topics(self, names: Sequence[str]) -> dict[str, ClientError | None]:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=NO_UUID) for name in names],
            timeout_ms=self._client.request_timeout_ms,
        )
        connection = await self._client.persist(self._client.brokers.any)
        if connection.version_for(DeleteTopicsRequest) < DELETES_BY_STATE:
            request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=self._client.request_timeout_ms)
        connection, answer = await self._change(request)
        assert isinstance(answer, DeleteTopicsResponse)
        outcomes: dict[str, ClientError | None] = {}
        for result in answer.responses:
            name = result.name or ""
            self._client.metadata.stale(name)
            outcomes[name] = refusal_of(result.error_code, connection.address, f"topic {name}", result.error_message)
        return outcomes

    async def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, ClientError | None]:
        """Increase the number of partitions of topics to the given totals."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=total, assignments=None) for name, total in totals.items()],
            timeout_ms=self._client.request_timeout_ms,
            validate_only=validate_only,
        )
        connection, answer = await self._change(request)
        assert isinstance(answer, CreatePartitionsResponse)
        outcomes: dict[str, ClientError | None] = {}
        for result in answer.results:
            self._client.metadata.stale(result.name)
            subject = f"topic {result.name}"
            outcomes[result.name] = refusal_of(result.error_code, connection.address, subject, result.error_message)
        return outcomes

    async def list_topics(self) -> dict[str, Topic]:
        """Every topic, by name."""
        topics = await self._client.persist(self._client.metadata.all_topics)
        return dict(sorted(topics.items()))

    async def describe_topic(self, name: str, *, timeout_ms: int = 0) -> Topic:
        """One topic; with `timeout_ms`, waits for a topic that is not known yet."""
        self._client.metadata.stale(name)
        return await self._client.metadata.topic(name, timeout_ms=timeout_ms)

    async def describe_cluster(self) -> ClusterDescription:
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        connection, answer = await self._client.persist(lambda: self._client.call_any(request))
        assert isinstance(answer, DescribeClusterResponse)
        error = error_of(answer.error_code)
        if error is not Error.NONE:
            raise _declined(error, connection, "", answer.error_message)
        brokers = sorted(Broker(one.broker_id, Address(one.host, one.port), one.rack) for one in answer.brokers)
        return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)

    async def describe_configs(
        self,
        resources: Sequence[Resource],
        *,
        names: Sequence[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> dict[Resource, list[ConfigEntry] | ClientError]:
        return await describe_configs(
            self._client, resources, names=names, synonyms=synonyms, documentation=documentation
        )

    async def alter_configs(
        self, changes: Mapping[Resource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> dict[Resource, ClientError | None]:
        return await alter_configs(self._client, changes, validate_only=validate_only)

    async def list_offsets(
        self, moments: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAt]:
        return await list_offsets(self._client, moments, committed=committed)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before the given offsets (HIGH_WATERMARK: all); returns the new log starts."""

        async def ask(node: int, asked: dict[TopicPartition, int]) -> dict[TopicPartition, int | ClientError]:
            topics: dict[str, DeleteRecordsTopic] = {}
            for partition, offset in asked.items():
                topic = topics.setdefault(partition.topic, DeleteRecordsTopic(name=partition.topic, partitions=[]))
                topic.partitions.append(DeleteRecordsPartition(partition_index=partition.partition, offset=offset))
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self._client.request_timeout_ms)
            connection, answer = await self._client.call_node(node, request)
            assert isinstance(answer, DeleteRecordsResponse)
            outcomes: dict[TopicPartition, int | ClientError] = {}
            for result in answer.topics:
                for one in result.partitions:
                    partition = TopicPartition(result.name, one.partition_index)
                    failure = refusal_of(one.error_code, connection.address, f"partition {partition}")
                    outcomes[partition] = one.low_watermark if failure is None else failure
            return outcomes

        return await ask_leaders(self._client, before, ask)

    async def describe_log_dirs(self) -> list[LogDir]:
        """The log directories of every broker, with their replicas."""
        await self._client.persist(self._client.metadata.all_topics)
        directories: list[LogDir] = []
        for node in self._client.cluster.brokers:
            directories += await self._client.persist(lambda node=node: self._log_dirs_of(node))  # type: ignore[misc]
        return directories

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> dict[int, list[GroupListing] | ClientError]:
        """The groups that each broker coordinates."""
        return await list_groups(self._client, states=states, types=types)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription | ClientError]:
        return await describe_groups(self._client, group_ids)

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, ClientError | None]:
        return await delete_groups(self._client, group_ids)

    async def committed_offsets(self, group_ids: Iterable[str]) -> dict[str, Offsets | ClientError]:
        return await committed_offsets(self._client, group_ids)

    async def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ClientError | None]:
        return await commit_offsets(self._client, group_id, offsets)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ClientError | None]:
        return await delete_offsets(self._client, group_id, partitions)

    async def list_transactions(
        self, *, states: Sequence[str] = (), producer_ids: Sequence[int] = (), longer_than_ms: int = ANY_DURATION
    ) -> dict[int, list[TransactionListing] | ClientError]:
        """The transactional ids that each broker coordinates."""
        return await list_transactions(
            self._client, states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription | ClientError]:
        return await describe_transactions(self._client, transactional_ids)

    async def fence_producer(self, transactional_id: str, *, timeout_ms: int) -> None:
        await fence_producer(self._client, transactional_id, timeout_ms=timeout_ms)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerState]]:
        return await describe_producers(self._client, partitions)

    async def write_abort_marker(self, partition: TopicPartition, producer: ProducerState) -> None:
        await write_abort_marker(self._client, partition, producer)

    async def _log_dirs_of(self, node: int) -> list[LogDir]:
        connection, answer = await self._client.call_node(node, DescribeLogDirsRequest(topics=None))
        assert isinstance(answer, DescribeLogDirsResponse)
        error = error_of(answer.error_code)
        if error is not Error.NONE:
            raise _declined(error, connection, "log directories", None)
        return [
            LogDir(
                node,
                result.log_dir,
                error_of(result.error_code),
                result.total_bytes,
                result.usable_bytes,
                [
                    Replica(
                        TopicPartition(topic.name, one.partition_index),
                        one.partition_size,
                        one.offset_lag,
                        one.is_future_key,
                    )
                    for topic in result.topics
                    for one in topic.partitions
                ],
            )
            for result in answer.results
        ]

    async def _change(self, request: object) -> tuple[BrokerConnection, Any]:
        """Retry until a broker is reached, then send the request once: a second attempt could undo or contradict the
        first."""
        connection = await self._client.persist(self._client.brokers.any)
        return connection, await connection.call(request, timeout_ms=self._client.request_timeout_ms)


DELETES_BY_STATE: Final = 6  # First version of DeleteTopics whose topics are structures, with name or id.


def _creatable(topic: NewTopic) -> CreatableTopic:
    assigned = bool(topic.assignments)
    return CreatableTopic(
        name=topic.name,
        num_partitions=CLUSTER_DEFAULT if assigned else topic.partitions,
        replication_factor=CLUSTER_DEFAULT if assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            for partition, brokers in topic.assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _declined(error: Error, connection: BrokerConnection, subject: str, text: str | None) -> Declined:
    return Declined(error, broker=connection.address, subject=subject, text=text)
