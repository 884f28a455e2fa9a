"""Records of `__cluster_metadata`."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Bytes, Float64, Int8, Int16, Int32, Int64, String, UInt16, Uuid


@struct
class BrokerEndpoint:
    name: String
    host: String
    port: UInt16
    security_protocol: Int16


@struct
class BrokerFeature:
    name: String
    min_supported_version: Int16
    max_supported_version: Int16


@message(record_type=0, versions=(0, 4), flexible=0)
class RegisterBrokerRecord:
    """A broker registered."""

    broker_id: Int32
    is_migrating_zk_broker: Bool = field(since=2, default=False)  # Always false since Kafka 4.0.
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: String | None
    fenced: Bool = field(default=True)
    in_controlled_shutdown: Bool = field(since=1, default=False)
    log_dirs: list[Uuid] = field(since=3, tag=0, default=[])
    cordoned_log_dirs: list[Uuid] | None = field(since=4, tag=1, default=None)


@message(record_type=1, versions=(0, 0), flexible=0)
class UnregisterBrokerRecord:
    """A broker was removed for good."""

    broker_id: Int32
    broker_epoch: Int64


@message(record_type=2, versions=(0, 0), flexible=0)
class TopicRecord:
    """A topic was created."""

    name: String
    topic_id: Uuid


@message(record_type=3, versions=(0, 2), flexible=0)
class PartitionRecord:
    """A partition with its whole state: it was created, or the record is part of a snapshot."""

    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = field(default=-1)  # -1: none.
    leader_recovery_state: Int8 = field(tag=0, default=0)
    leader_epoch: Int32 = field(default=-1)
    partition_epoch: Int32 = field(default=-1)
    directories: list[Uuid] = field(since=1, default=[])
    eligible_leader_replicas: list[Int32] | None = field(since=2, tag=1, default=None)
    last_known_elr: list[Int32] | None = field(since=2, tag=2, default=None)


@message(record_type=4, versions=(0, 0), flexible=0)
class ConfigRecord:
    """A setting was set or removed."""

    resource_type: Int8
    resource_name: String
    name: String
    value: String | None = field(secret=True)  # Null removes the setting.


@message(record_type=5, versions=(0, 2), flexible=0)
class PartitionChangeRecord:
    """Changes of a partition: its leader, in-sync set, replicas or directories."""

    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    isr: list[Int32] | None = field(tag=0, default=None)  # Null: no change.
    leader: Int32 = field(tag=1, default=-2)  # -2: no change; -1: none.
    replicas: list[Int32] | None = field(tag=2, default=None)
    removing_replicas: list[Int32] | None = field(tag=3, default=None)
    adding_replicas: list[Int32] | None = field(tag=4, default=None)
    leader_recovery_state: Int8 = field(tag=5, default=-1)
    directories: list[Uuid] | None = field(since=1, tag=8, default=None)
    eligible_leader_replicas: list[Int32] | None = field(since=2, tag=6, default=None)
    last_known_elr: list[Int32] | None = field(since=2, tag=7, default=None)


@message(record_type=7, versions=(0, 0), flexible=0)
class FenceBrokerRecord:
    """A broker was fenced; superseded by BrokerRegistrationChangeRecord."""

    id: Int32
    epoch: Int64


@message(record_type=8, versions=(0, 0), flexible=0)
class UnfenceBrokerRecord:
    """A broker was unfenced; superseded by BrokerRegistrationChangeRecord."""

    id: Int32
    epoch: Int64


@message(record_type=9, versions=(0, 0), flexible=0)
class RemoveTopicRecord:
    """A topic was deleted."""

    topic_id: Uuid


@message(record_type=10, versions=(0, 0), flexible=0)
class DelegationTokenRecord:
    """A delegation token was issued or renewed."""

    owner: String
    requester: String
    renewers: list[String]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: String


@message(record_type=11, versions=(0, 0), flexible=0)
class UserScramCredentialRecord:
    """A user's SCRAM credential."""

    name: String
    mechanism: Int8
    salt: Bytes = field(secret=True)
    stored_key: Bytes = field(secret=True)
    server_key: Bytes = field(secret=True)
    iterations: Int32


@message(record_type=12, versions=(0, 0), flexible=0)
class FeatureLevelRecord:
    """The cluster's version of a feature."""

    name: String
    feature_level: Int16  # 0 removes the feature.


@struct
class EntityData:
    entity_type: String
    entity_name: String | None


@message(record_type=14, versions=(0, 0), flexible=0)
class ClientQuotaRecord:
    """A quota was set or removed."""

    entity: list[EntityData]
    key: String
    value: Float64
    remove: Bool  # If true, the quota is removed and `value` has no meaning.


@message(record_type=15, versions=(0, 0), flexible=0)
class ProducerIdsRecord:
    """A block of producer ids was given to a broker."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    next_producer_id: Int64


@message(record_type=17, versions=(0, 3), flexible=0)
class BrokerRegistrationChangeRecord:
    """A registered broker was fenced, unfenced or shut down, or its directories changed."""

    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = field(tag=0, default=0)  # -1 unfenced, 0 no change, 1 fenced.
    in_controlled_shutdown: Int8 = field(since=1, tag=1, default=0)
    log_dirs: list[Uuid] = field(since=2, tag=2, default=[])
    cordoned_log_dirs: list[Uuid] | None = field(since=3, tag=3, default=None)


@message(record_type=18, versions=(0, 0), flexible=0)
class AccessControlEntryRecord:
    """An access control entry was added."""

    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message(record_type=19, versions=(0, 0), flexible=0)
class RemoveAccessControlEntryRecord:
    """An access control entry was removed."""

    id: Uuid


@message(record_type=20, versions=(0, 0), flexible=0)
class NoOpRecord:
    """Has no effect. Kafka's controller writes it at intervals, so that the end of the log moves."""


@message(record_type=21, versions=(0, 0), flexible=0)
class ZkMigrationStateRecord:
    """The state of a migration from ZooKeeper; never written here."""

    zk_migration_state: Int8


@message(record_type=22, versions=(0, 0), flexible=0)
class RemoveUserScramCredentialRecord:
    """A user's SCRAM credential was removed."""

    name: String
    mechanism: Int8


@message(record_type=23, versions=(0, 0), flexible=0)
class BeginTransactionRecord:
    """Begins a metadata transaction: the records after it take effect when an EndTransactionRecord follows."""

    name: String | None = field(tag=0, default=None)


@message(record_type=24, versions=(0, 0), flexible=0)
class EndTransactionRecord:
    """Ends a metadata transaction: the records since the BeginTransactionRecord take effect."""


@message(record_type=25, versions=(0, 0), flexible=0)
class AbortTransactionRecord:
    """Aborts a metadata transaction: the records since the BeginTransactionRecord have no effect."""

    reason: String | None = field(tag=0, default=None)


@message(record_type=26, versions=(0, 0), flexible=0)
class RemoveDelegationTokenRecord:
    """A delegation token was removed."""

    token_id: String


@struct
class ControllerEndpoint:
    name: String
    host: String
    port: UInt16
    security_protocol: Int16


@struct
class ControllerFeature:
    name: String
    min_supported_version: Int16
    max_supported_version: Int16


@message(record_type=27, versions=(0, 0), flexible=0)
class RegisterControllerRecord:
    """A controller registered."""

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]


@message(record_type=28, versions=(0, 0), flexible=0)
class ClearElrRecord:
    """The eligible leader replicas of a topic, or of all topics, were removed."""

    topic_name: String
