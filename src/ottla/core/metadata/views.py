"""The view of the image that clients of one listener get: brokers, topics, leaders.

Rule 1: a client gets only addresses of the listener that it is connected to.
Rule 2: a replica is offline when its broker is unknown, fenced, without that listener, or has lost the directory.
Rule 3: older versions have fewer features. Version 0 leaves out unreachable replicas and reports that as an error.
        Versions before 6 do not have LISTENER_NOT_FOUND.
"""

from typing import Final

from ottla.core.metadata.image import NO_LEADER, Image, Partition, Topic, is_online
from ottla.core.metadata.names import is_internal, name_fault
from ottla.wire.api.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.wire.api.metadata import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.errors import Error
from ottla.wire.types import NO_UUID

_LISTENER_NOT_FOUND_SINCE: Final = 6


def brokers_seen(image: Image, listener: str) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker in image.live_brokers()
        if (endpoint := broker.endpoint(listener)) is not None
    ]


def topic_seen(image: Image, topic: Topic, listener: str, version: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=Error.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[
            _partition_seen(image, index, topic.partitions[index], listener, version)
            for index in sorted(topic.partitions)
        ],
    )


def topic_missing(name: str | None, error: Error, topic_id: bytes = NO_UUID) -> MetadataResponseTopic:
    internal = name is not None and is_internal(name)
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, is_internal=internal, partitions=[])


def error_of_missing(name: str) -> Error:
    return Error.INVALID_TOPIC_EXCEPTION if name_fault(name) else Error.UNKNOWN_TOPIC_OR_PARTITION


def _partition_seen(
    image: Image, index: int, partition: Partition, listener: str, version: int
) -> MetadataResponsePartition:
    replicas, isr = list(partition.replicas), list(partition.isr)
    error = Error.NONE
    if version == 0:
        replicas = [one for one in replicas if _reachable(image, one, listener)]
        isr = [one for one in isr if _reachable(image, one, listener)]
        if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = Error.REPLICA_NOT_AVAILABLE
    leader = partition.leader
    if not _has_listener(image, leader, listener):
        known = leader in image.brokers and version >= _LISTENER_NOT_FOUND_SINCE
        leader, error = NO_LEADER, Error.LISTENER_NOT_FOUND if known else Error.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=_offline(image, partition, listener),
    )


def _has_listener(image: Image, broker_id: int, listener: str) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.endpoint(listener) is not None


def _reachable(image: Image, broker_id: int, listener: str) -> bool:
    return _has_listener(image, broker_id, listener) and not image.brokers[broker_id].fenced


def _offline(image: Image, partition: Partition, listener: str) -> list[int]:
    return [
        broker_id
        for broker_id in partition.replicas
        if not _reachable(image, broker_id, listener) or not is_online(partition, image.brokers[broker_id])
    ]


class PartitionsPage:
    """One page of DescribeTopicPartitions. It has the topics in the order in which they are added, and at most `limit`
    partitions. The cursor is the start of the next page."""

    def __init__(
        self,
        image: Image,
        listener: str,
        *,
        first_partition: dict[str, int],
        limit: int,
        skip_missing: bool,
        operations: int,
    ) -> None:
        self._image = image
        self._listener = listener
        self._first_partition = first_partition
        self._left = limit
        self._skip_missing = skip_missing
        self._operations = operations
        self._topics: list[DescribeTopicPartitionsResponseTopic] = []
        self._cursor: Cursor | None = None

    def is_full_before(self, name: str) -> bool:
        """Add a topic, or as many of its partitions as fit. Returns whether the page is full."""
        if self._left <= 0:
            self._cursor = Cursor(topic_name=name, partition_index=0)
            return True
        image = self._image
        topic = image.topics.get(name)
        if topic is None:
            if not self._skip_missing:
                self._topics.append(_described(name, NO_UUID, error_of_missing(name), [], self._operations))
            return False
        first = self._first_partition.get(name, 0)
        end = min(len(topic.partitions), first + self._left)
        partitions = [
            _partition_described(image, index, topic.partitions[index], self._listener) for index in range(first, end)
        ]
        self._topics.append(_described(name, topic.topic_id, Error.NONE, partitions, self._operations))
        self._left -= len(partitions)
        if end < len(topic.partitions):
            self._cursor = Cursor(topic_name=name, partition_index=end)
            return True
        return False

    def response(self) -> DescribeTopicPartitionsResponse:
        return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=self._topics, next_cursor=self._cursor)


def _described(
    name: str,
    topic_id: bytes,
    error: Error,
    partitions: list[DescribeTopicPartitionsResponsePartition],
    operations: int,
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id,
        is_internal=is_internal(name),
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def _partition_described(
    image: Image, index: int, partition: Partition, listener: str
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=Error.NONE,
        partition_index=index,
        leader_id=partition.leader if _has_listener(image, partition.leader, listener) else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=_offline(image, partition, listener),
    )
