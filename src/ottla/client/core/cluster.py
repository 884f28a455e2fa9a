"""The client's knowledge of the cluster: brokers, topics, leaders.

Rule 1: it is updated piece by piece from metadata responses and may be outdated at any time. An error response then
        tells the caller to refresh it.
Rule 2: brokers learn of changes at different times. A partition's older leader epoch never replaces a newer one
        (KIP-320), unless the topic's id changed: then it is another topic of the same name.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.client.core.names import TopicPartition
from ottla.rpc.addresses import Address
from ottla.rpc.errors import error_of
from ottla.wire.api.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.wire.errors import Error
from ottla.wire.types import NO_UUID

NO_NODE: Final = -1


class Broker(NamedTuple):
    node_id: int
    address: Address
    rack: str | None


class Partition(NamedTuple):
    index: int  # type: ignore[assignment]  # Kafka's name; hides tuple.index, which is not used.
    leader: int  # NO_NODE while there is none.
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: Error


class Topic(NamedTuple):
    name: str
    topic_id: bytes  # NO_UUID from a broker too old to send it.
    internal: bool
    partitions: tuple[Partition, ...]  # By index, without gaps.

    @property
    def led(self) -> list[int]:
        """The partitions that have a leader."""
        return [partition.index for partition in self.partitions if partition.leader != NO_NODE]


@dataclass(slots=True)
class Cluster:
    """Brokers and topics of a cluster."""

    cluster_id: str | None = None
    controller: int = NO_NODE
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    errors: dict[str, Error] = field(default_factory=dict)  # Why a requested topic is not in `topics`.

    def update(self, answer: MetadataResponse, *, complete: bool) -> None:
        """Apply a response. `complete`: it covers all topics, so a topic that is missing in it is gone."""
        self.cluster_id = answer.cluster_id
        self.controller = answer.controller_id
        self.brokers = {
            broker.node_id: Broker(broker.node_id, Address(broker.host, broker.port), broker.rack)
            for broker in sorted(answer.brokers, key=lambda broker: broker.node_id)
        }
        if complete:
            present = {topic.name for topic in answer.topics}
            self.topics = {name: topic for name, topic in self.topics.items() if name in present}
            self.errors.clear()
        for topic in answer.topics:
            self._update_topic(topic)

    def _update_topic(self, answer: MetadataResponseTopic) -> None:
        name = answer.name or ""
        error = error_of(answer.error_code)
        if error is not Error.NONE:
            self.errors[name] = error
            self.topics.pop(name, None)
            return
        self.errors.pop(name, None)
        known = self.topics.get(name)
        same = known if known is not None and known.topic_id == answer.topic_id else None
        partitions = sorted(answer.partitions, key=lambda partition: partition.partition_index)
        self.topics[name] = Topic(
            name, answer.topic_id, answer.is_internal, tuple(_newer(same, partition) for partition in partitions)
        )

    def leader(self, partition: TopicPartition) -> int:
        """The leader of a partition; NO_NODE if none is known."""
        found = self.partition(partition)
        return NO_NODE if found is None or found.leader not in self.brokers else found.leader

    def partition(self, partition: TopicPartition) -> Partition | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def topic_id(self, name: str) -> bytes:
        topic = self.topics.get(name)
        return NO_UUID if topic is None else topic.topic_id

    def name_of(self, topic_id: bytes) -> str | None:
        return next((topic.name for topic in self.topics.values() if topic.topic_id == topic_id), None)


def _newer(known: Topic | None, answer: MetadataResponsePartition) -> Partition:
    received = Partition(
        answer.partition_index,
        answer.leader_id,
        answer.leader_epoch,
        tuple(answer.replica_nodes),
        tuple(answer.isr_nodes),
        tuple(answer.offline_replicas),
        error_of(answer.error_code),
    )
    if known is None or received.index >= len(known.partitions):
        return received
    before = known.partitions[received.index]
    return before if before.leader_epoch > received.leader_epoch >= 0 else received
