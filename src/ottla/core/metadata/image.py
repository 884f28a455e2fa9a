"""The image: the state of the cluster, built by replaying the metadata log.

Rule 1: `replay` is the only mutator, live and at load, from the log and from a snapshot. So a prefix of the log gives
        the same image as a snapshot and the rest of that prefix.
Rule 2: records between BeginTransactionRecord and EndTransactionRecord take effect all at once when the end is
        replayed. AbortTransactionRecord discards them.
Rule 3: a record that contradicts the image raises `BadMetadata`, because the state after it would not be one that the
        controller decided on.
Rule 4: results of queries are immutable (tuples). Lists of topics and brokers are sorted, so that no order depends on
        history.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.core.metadata.names import collision_key
from ottla.core.metadata.records import MetadataRecord
from ottla.wire.records import metadata as records
from ottla.wire.types import NO_UUID
from ottla.wire.uuids import uuid_to_text

NO_LEADER = -1
NO_LEADER_CHANGE = -2
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
"""Directory of a replica whose broker has not yet reported the directory."""
LOST_DIRECTORY = bytes(15) + b"\x02"
"""Directory of a replica that its broker cannot use."""
METADATA_VERSION = "metadata.version"

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32


class BadMetadata(Exception):
    """A record that contradicts the records replayed before it."""


class Partition(NamedTuple):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...]
    """One per replica; empty in clusters that do not assign directories."""
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0


class Topic:
    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, Partition] = {}

    def __repr__(self) -> str:
        return f"<topic {self.name} {uuid_to_text(self.topic_id)}, {len(self.partitions)} partitions>"


class BrokerEndpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int


class FeatureRange(NamedTuple):
    name: str
    lowest: int
    highest: int


class Broker(NamedTuple):
    broker_id: int
    incarnation_id: bytes
    epoch: int
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    cordoned: tuple[bytes, ...] | None

    @property
    def active(self) -> bool:
        """Whether the broker may be in sync and lead."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        return next((endpoint for endpoint in self.endpoints if endpoint.name == listener), None)


class Image:
    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.collisions: dict[str, dict[str, None]] = {}
        """Topic names by their `collision_key`. The inner dictionary is an ordered set."""
        self.brokers: dict[int, Broker] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        """Settings by resource type and name. The broker name "" stands for all brokers."""
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        # Kept as records, because nothing uses their contents yet.
        self.controllers: dict[int, records.RegisterControllerRecord] = {}
        self.quotas: dict[tuple[tuple[tuple[str, str | None], ...], str], records.ClientQuotaRecord] = {}
        self.acls: dict[bytes, records.AccessControlEntryRecord] = {}
        self.scram: dict[tuple[int, str], records.UserScramCredentialRecord] = {}
        self.tokens: dict[str, records.DelegationTokenRecord] = {}
        self._transaction: list[MetadataRecord] | None = None

    def copy(self) -> "Image":
        """An independent image with the same contents: a replay in one does not affect the other."""
        other = Image()
        for name, topic in self.topics.items():
            twin = Topic(name, topic.topic_id)
            twin.partitions = dict(topic.partitions)
            other.topics[name] = other.topics_by_id[topic.topic_id] = twin
        other.collisions = {key: dict(names) for key, names in self.collisions.items()}
        other.brokers = dict(self.brokers)
        other.configs = {resource: dict(settings) for resource, settings in self.configs.items()}
        other.features = dict(self.features)
        other.next_producer_id = self.next_producer_id
        other.controllers, other.quotas, other.acls = dict(self.controllers), dict(self.quotas), dict(self.acls)
        other.scram, other.tokens = dict(self.scram), dict(self.tokens)
        other._transaction = None if self._transaction is None else list(self._transaction)
        return other

    # Queries.

    @property
    def level(self) -> int:
        """The finalised metadata.version; 0 before the first record."""
        return self.features.get(METADATA_VERSION, 0)

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction was opened whose end has not been replayed."""
        return self._transaction is not None

    def topic_names(self) -> list[str]:
        return sorted(self.topics)

    def live_brokers(self) -> list[Broker]:
        return [self.brokers[broker_id] for broker_id in sorted(self.brokers) if not self.brokers[broker_id].fenced]

    def config(self, resource_type: int, name: str) -> dict[str, str]:
        """A copy of the settings of a resource; later changes do not affect it."""
        return dict(self.configs.get((resource_type, name), ()))

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, topic: str, partition: int) -> Partition | None:
        found = self.topics.get(topic)
        return found.partitions.get(partition) if found is not None else None

    def partitions(self) -> Iterator[tuple[Topic, int, Partition]]:
        """All partitions, sorted by topic name and index."""
        for name in self.topic_names():
            topic = self.topics[name]
            for index in sorted(topic.partitions):
                yield topic, index, topic.partitions[index]

    # Changes.

    def replay(self, record: MetadataRecord) -> None:
        kind = type(record)
        if kind is records.BeginTransactionRecord:
            if self._transaction is not None:
                raise BadMetadata("a transaction begins inside another")
            self._transaction = []
        elif kind is records.AbortTransactionRecord:
            self._ended_transaction("aborted")
        elif kind is records.EndTransactionRecord:
            for pending in self._ended_transaction("ended"):
                self._apply(pending)
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._apply(record)

    def _ended_transaction(self, how: str) -> list[MetadataRecord]:
        pending, self._transaction = self._transaction, None
        if pending is None:
            raise BadMetadata(f"a transaction is {how} that never began")
        return pending

    def _apply(self, record: MetadataRecord) -> None:
        try:
            apply = _REPLAY[type(record)]
        except KeyError:
            raise BadMetadata(f"{type(record).__name__} has no meaning in the metadata log") from None
        apply(self, record)

    def _topic_created(self, record: records.TopicRecord) -> None:
        if record.name in self.topics or record.topic_id in self.topics_by_id:
            raise BadMetadata(f"topic {record.name} ({uuid_to_text(record.topic_id)}) is created twice")
        topic = Topic(record.name, record.topic_id)
        self.topics[record.name] = self.topics_by_id[record.topic_id] = topic
        if (key := collision_key(record.name)) is not None:
            self.collisions.setdefault(key, {})[record.name] = None

    def _topic_removed(self, record: records.RemoveTopicRecord) -> None:
        topic = self._topic(record.topic_id)
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]
        if (key := collision_key(topic.name)) is not None:
            del self.collisions[key][topic.name]
            if not self.collisions[key]:
                del self.collisions[key]
        self.configs.pop((TOPIC, topic.name), None)

    def _partition_created(self, record: records.PartitionRecord) -> None:
        self._topic(record.topic_id).partitions[record.partition_id] = Partition(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories),
            removing=tuple(record.removing_replicas),
            adding=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader_recovery_state=record.leader_recovery_state,
        )

    def _partition_changed(self, record: records.PartitionChangeRecord) -> None:
        partitions = self._topic(record.topic_id).partitions
        old = partitions.get(record.partition_id)
        if old is None:
            raise BadMetadata(
                f"partition {record.partition_id} of topic {uuid_to_text(record.topic_id)} changes and does not exist"
            )
        elects = record.leader != NO_LEADER_CHANGE
        partitions[record.partition_id] = Partition(
            replicas=_changed(record.replicas, old.replicas),
            isr=_changed(record.isr, old.isr),
            leader=record.leader if elects else old.leader,
            leader_epoch=old.leader_epoch + elects,
            partition_epoch=old.partition_epoch + 1,
            directories=old.directories if record.directories is None else tuple(record.directories),
            removing=_changed(record.removing_replicas, old.removing),
            adding=_changed(record.adding_replicas, old.adding),
            elr=_changed(record.eligible_leader_replicas, old.elr),
            last_known_elr=_changed(record.last_known_elr, old.last_known_elr),
            leader_recovery_state=(
                record.leader_recovery_state if record.leader_recovery_state >= 0 else old.leader_recovery_state
            ),
        )

    def _elr_cleared(self, record: records.ClearElrRecord) -> None:
        if record.topic_name and record.topic_name not in self.topics:
            raise BadMetadata(f"the eligible leaders of topic {record.topic_name} are cleared and it does not exist")
        for topic in [self.topics[record.topic_name]] if record.topic_name else list(self.topics.values()):
            for index, old in topic.partitions.items():
                if old.elr or old.last_known_elr:
                    topic.partitions[index] = old._replace(
                        elr=(), last_known_elr=(), partition_epoch=old.partition_epoch + 1
                    )

    def _broker_registered(self, record: records.RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = Broker(
            broker_id=record.broker_id,
            incarnation_id=record.incarnation_id,
            epoch=record.broker_epoch,
            endpoints=tuple(
                BrokerEndpoint(point.name, point.host, point.port, point.security_protocol)
                for point in record.end_points
            ),
            features=tuple(
                FeatureRange(feature.name, feature.min_supported_version, feature.max_supported_version)
                for feature in record.features
            ),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
            cordoned=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        )

    def _broker_unregistered(self, record: records.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]

    def _broker_changed(self, record: records.BrokerRegistrationChangeRecord) -> None:
        old = self._broker(record.broker_id, record.broker_epoch)
        self.brokers[record.broker_id] = old._replace(
            fenced=record.fenced > 0 if record.fenced else old.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown > 0 or old.in_controlled_shutdown,
            directories=tuple(record.log_dirs) or old.directories,
            cordoned=old.cordoned if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        )

    def _broker_fenced(self, record: records.FenceBrokerRecord) -> None:
        self.brokers[record.id] = self._broker(record.id, record.epoch)._replace(fenced=True)

    def _broker_unfenced(self, record: records.UnfenceBrokerRecord) -> None:
        self.brokers[record.id] = self._broker(record.id, record.epoch)._replace(fenced=False)

    def _configured(self, record: records.ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        if record.value is not None:
            self.configs.setdefault(resource, {})[record.name] = record.value
        elif (settings := self.configs.get(resource)) is not None:
            settings.pop(record.name, None)
            if not settings:
                del self.configs[resource]

    def _feature_finalised(self, record: records.FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _producer_ids_given(self, record: records.ProducerIdsRecord) -> None:
        if record.next_producer_id < self.next_producer_id:
            raise BadMetadata(f"producer ids go back from {self.next_producer_id} to {record.next_producer_id}")
        self.next_producer_id = record.next_producer_id

    def _quota_set(self, record: records.ClientQuotaRecord) -> None:
        entity = tuple(sorted(((part.entity_type, part.entity_name) for part in record.entity), key=repr))
        if record.remove:
            self.quotas.pop((entity, record.key), None)
        else:
            self.quotas[entity, record.key] = record

    def _controller_registered(self, record: records.RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = record

    def _acl_added(self, record: records.AccessControlEntryRecord) -> None:
        self.acls[record.id] = record

    def _acl_removed(self, record: records.RemoveAccessControlEntryRecord) -> None:
        self.acls.pop(record.id, None)

    def _scram_set(self, record: records.UserScramCredentialRecord) -> None:
        self.scram[record.mechanism, record.name] = record

    def _scram_removed(self, record: records.RemoveUserScramCredentialRecord) -> None:
        self.scram.pop((record.mechanism, record.name), None)

    def _token_issued(self, record: records.DelegationTokenRecord) -> None:
        self.tokens[record.token_id] = record

    def _token_removed(self, record: records.RemoveDelegationTokenRecord) -> None:
        self.tokens.pop(record.token_id, None)

    def _nothing(self, record: MetadataRecord) -> None:
        """Handles records without effect: NoOpRecord, and those of the migration from ZooKeeper."""

    def _topic(self, topic_id: bytes) -> Topic:
        try:
            return self.topics_by_id[topic_id]
        except KeyError:
            raise BadMetadata(f"there is no topic {uuid_to_text(topic_id)}") from None

    def _broker(self, broker_id: int, epoch: int) -> Broker:
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            registered = "not registered" if broker is None else f"registered with epoch {broker.epoch}"
            raise BadMetadata(f"a record speaks of broker {broker_id} in epoch {epoch}, which is {registered}")
        return broker


def _changed(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def directory_of(partition: Partition, broker_id: int) -> bytes:
    """The directory in which a broker has its replica; the zero id if that is not recorded."""
    if broker_id not in partition.replicas or not partition.directories:
        return NO_UUID
    return partition.directories[partition.replicas.index(broker_id)]


def is_online(partition: Partition, broker: Broker) -> bool:
    """Whether a broker can use the directory of its replica, as far as it has reported that."""
    directory = directory_of(partition, broker.broker_id)
    if directory in (NO_UUID, UNASSIGNED_DIRECTORY) or not broker.directories:
        return True
    return directory != LOST_DIRECTORY and directory in broker.directories


_REPLAY: dict[type, Callable[[Image, Any], None]] = {
    records.TopicRecord: Image._topic_created,
    records.RemoveTopicRecord: Image._topic_removed,
    records.PartitionRecord: Image._partition_created,
    records.PartitionChangeRecord: Image._partition_changed,
    records.ClearElrRecord: Image._elr_cleared,
    records.RegisterBrokerRecord: Image._broker_registered,
    records.UnregisterBrokerRecord: Image._broker_unregistered,
    records.BrokerRegistrationChangeRecord: Image._broker_changed,
    records.FenceBrokerRecord: Image._broker_fenced,
    records.UnfenceBrokerRecord: Image._broker_unfenced,
    records.ConfigRecord: Image._configured,
    records.FeatureLevelRecord: Image._feature_finalised,
    records.ProducerIdsRecord: Image._producer_ids_given,
    records.ClientQuotaRecord: Image._quota_set,
    records.RegisterControllerRecord: Image._controller_registered,
    records.AccessControlEntryRecord: Image._acl_added,
    records.RemoveAccessControlEntryRecord: Image._acl_removed,
    records.UserScramCredentialRecord: Image._scram_set,
    records.RemoveUserScramCredentialRecord: Image._scram_removed,
    records.DelegationTokenRecord: Image._token_issued,
    records.RemoveDelegationTokenRecord: Image._token_removed,
    records.NoOpRecord: Image._nothing,
    records.ZkMigrationStateRecord: Image._nothing,
}
