"""Values for the fields of requests, sound ones and odd ones, by the name of the field.

A field is looked up as `Structure.field`, then as `field`, then by its type. Where the sound values suffice to pass all
checks, a single odd one shows how its own check is answered.
"""

from typing import Any, Final, NamedTuple

from odd.values import TIMESTAMP, Batch, Given
from odd.world import PARTITIONS, SUBSCRIPTION, World
from ottla.config import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from ottla.kernel import Codec
from ottla.wire.types import NO_UUID

SHORT_MAX, INT_MAX, LONG_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
STRANGER_ID: Final = 2**40
NO_SUCH_TOPIC: Final = b"\x07" * 16
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
BAD_NAMES: Final = ("", ".", "..", "a/b", "x" * 249, "x" * 250, "ünïcode", "a b", "__cluster_metadata", "tab\there")
BY_TYPE: Final[dict[str, tuple[Any, ...]]] = {
    "bool": (True, False),
    "int8": (-1, 0, 1, 2, 127, -128),
    "int16": (-1, 0, 1, SHORT_MAX, -SHORT_MAX - 1),
    "int32": (-1, 0, 1, -5, 99, INT_MAX, -INT_MAX - 1),
    "int64": (-1, 0, 1, -5, 99, LONG_MAX, -LONG_MAX - 1),
    "string": ("", "odd", "x" * 300, "ünïcode"),
    "bytes": (b"", b"odd", SUBSCRIPTION),
    "uuid": (NO_UUID, NO_SUCH_TOPIC),
}
SETTING_VALUES: Final = (
    *(
        "",
        " ",
        "abc",
        "-2",
        "-1",
        "0",
        "1",
        "2",
        "100",
        " 5 ",
        "+5",
        "1e3",
        "0x10",
        "1000000",
        "10485760",
        "0.5",
        "1.5",
    ),
    *("nan", "-0.1", str(INT_MAX), str(INT_MAX + 1), str(LONG_MAX), str(LONG_MAX + 1), "true", "TRUE", "yes", "false"),
    *("delete", "compact", "delete,compact", "compact,compact", "delete,,", ",", "none", "gzip", "GZIP", "zstd"),
    *("producer", "uncompressed", "CreateTime", "LogAppendTime", "createtime", "*", "0:1", "0:1,1:1", "0:x", "0-1"),
    *("client_id=a", "client_id=(", "client_id", "nonsense=1", "org.apache.kafka.", "a,b", "latest", "INFO", "info"),
)


class Pool(NamedTuple):
    sound: tuple[Any, ...]
    odd: tuple[Any, ...]


class Pools:
    def __init__(self, world: World) -> None:
        self._world = world
        self._by_name = self._pools()

    def find(self, structure: str, field: str) -> Pool | None:
        return self._by_name.get(f"{structure}.{field}") or self._by_name.get(field)

    def _names(self, kind: str, *names: str) -> tuple[Given, ...]:
        return tuple(Given(kind, self._world.named(name)) for name in names)

    def _pools(self) -> dict[str, Pool]:
        named = self._world.named
        topics = Pool(
            tuple(named(name) for name in ("plain", "plain", "victim", "txn", "compacted", "limited")),
            (*INTERNAL, *BAD_NAMES, "unknown", named("gone"), named("PLAIN")),
        )
        own = Pool(topics.sound, (*BAD_NAMES, "unknown", named("gone")))
        """Where an internal topic would be changed."""
        new = Pool(
            tuple(named(f"new{number}") for number in range(20)),
            (*topics.sound, *BAD_NAMES, *INTERNAL, "__share_group_state", named("plain").replace("-", "_") + "."),
        )
        ids = self._names("topic_id", "plain", "plain", "victim", "txn", "compacted", "limited")
        topic_ids = Pool(ids, (NO_UUID, NO_SUCH_TOPIC, METADATA_TOPIC_ID, *self._names("topic_id", "gone")))
        partitions = Pool((0, 0, 1), (PARTITIONS, -1, -2, 99, INT_MAX))
        groups = Pool(
            tuple(named(name) for name in ("simple", "classic", "consumer")), ("", " ", "unknown", named("fresh"))
        )
        members = Pool(self._names("member_id", "classic", "consumer"), ("", "stranger", " "))
        generations = Pool(
            self._names("generation", "classic", "consumer"),
            (-1, -2, 0, 1, 2, 99, INT_MAX, *(Given("generation", named(g), 1) for g in ("classic", "consumer"))),
        )
        transactional_ids = Pool(
            tuple(named(name) for name in ("idle", "open", "done")), ("", " ", "unknown", named("fresh"))
        )
        producer_ids = Pool(
            self._names("producer_id", "idle", "open", "done"),
            (-1, -2, 0, STRANGER_ID, LONG_MAX, *self._names("producer_id", "idempotent")),
        )
        producer_epochs = Pool(
            self._names("producer_epoch", "idle", "open", "done"),
            (-1, -2, 0, 1, SHORT_MAX, Given("producer_epoch", named("open"), 1)),
        )
        epochs = Pool((-1, 0, 0), (-2, -5, 1, 99, INT_MAX))
        texts = Pool(("", "note"), (None, "x" * 4097, "x" * 4096))
        patterns = Pool((None, self._world.prefix), ("", "(", ".*", "[", f"{self._world.prefix}.*", "a{2}", "\\"))
        settings = Pool(
            tuple(name for name in TOPIC_SETTINGS if not name.startswith("ottla.")),
            ("", "unknown", "log.segment.bytes", "RETENTION.MS"),
        )
        values = Pool(("1000000", "-1", "delete", "true"), (*SETTING_VALUES, None))
        resources = Pool(
            tuple(named(name) for name in ("plain", "victim")),
            ("", "1", "2", "abc", "unknown", named("gone"), named("classic"), "a/b", "kafka"),
        )
        return {
            # Topics and partitions.
            "name": topics,
            "topic": topics,
            "topic_name": topics,
            "topic_id": topic_ids,
            "index": partitions,
            "partition": partitions,
            "partition_index": partitions,
            "partitions": partitions,
            "partition_indexes": partitions,
            # Beyond 2^31 Kafka goes on at the beginning.
            "Cursor.partition_index": Pool((0, 1), (-1, -2, 5, 99)),
            "topic_names": own,
            "DeleteTopicState.name": Pool((None, *own.sound), own.odd),
            "DeleteTopicState.topic_id": Pool((NO_UUID, *ids), topic_ids.odd),
            "MetadataRequestTopic.name": Pool((*topics.sound, None), topics.odd),
            "MetadataRequestTopic.topic_id": Pool((NO_UUID, NO_UUID, *ids[:1]), topic_ids.odd),
            "CreatePartitionsTopic.name": own,
            "WritableTxnMarkerTopic.name": own,
            "RequestTopicData.topic_name": Pool(("__cluster_metadata",), topics.odd),
            "CreatableTopic.name": new,
            "num_partitions": Pool((1, 2, -1), (0, -2, 100_001, INT_MAX)),
            "replication_factor": Pool((1, -1), (0, 2, -2, SHORT_MAX)),
            "CreatableReplicaAssignment.partition_index": Pool((0,), (0, 1, 2, -1)),
            "broker_ids": Pool((1,), (1, 2, -1, 99)),
            "count": Pool((PARTITIONS + 1,), (PARTITIONS, 1, 0, -1, 100_000, INT_MAX)),
            "response_partition_limit": Pool((2000, 3), (0, -1, 1, INT_MAX)),
            # Epochs, offsets, times.
            "current_leader_epoch": epochs,
            "leader_epoch": Pool((0,), (-1, -2, -5, 1, 99, INT_MAX)),
            "committed_leader_epoch": epochs,
            "last_fetched_epoch": Pool((-1, 0), (-2, -5, 1, 99)),
            "fetch_offset": Pool((0, 3, 12), (-1, -2, 1, 13, 99, LONG_MAX)),
            "FetchPartition.log_start_offset": Pool((-1,), (0, 5, 99)),
            "FetchPartition.high_watermark": Pool((LONG_MAX,), (-1, 0, 5)),
            "offset": Pool((0, 1, 3), (-1, -2, 12, 13, 99, LONG_MAX)),
            "committed_offset": Pool((0, 5, 100), (-1, -2, LONG_MAX)),
            "timestamp": Pool(
                (-1, -2, 1_600_000_001_000),
                (-3, -4, -5, -6, -7, 0, TIMESTAMP, TIMESTAMP + 1, LONG_MAX, -LONG_MAX - 1),
            ),
            "retention_time_ms": Pool((-1,), (0, 1000, LONG_MAX)),
            # Fetching.
            "replica_id": Pool((-1,), (-2, -3, 0, 1, 2, 99)),
            "replica_epoch": Pool((-1,), (0, 1, 99)),
            "max_wait_ms": Pool((0, 20), (-1, -5)),
            "min_bytes": Pool((0, 1), (-1, 99, INT_MAX)),
            "FetchRequest.max_bytes": Pool((INT_MAX, 10_000), (0, -1, 1, 100, 200)),
            "partition_max_bytes": Pool((10_000, 1_000_000), (0, -1, 1, 100, 200, INT_MAX)),
            "isolation_level": Pool((0, 1), (2, -1, 127)),
            "session_id": Pool((0, 0, *self._names("session_id", "session")), (-1, 1, 99, 2**30)),
            "session_epoch": Pool((-1, -1, 0, 1), (-2, 2, 99, INT_MAX)),
            "cluster_id": Pool((None,), ("", "odd")),
            "rack_id": Pool(("",), ("a", "x" * 100)),
            "ConsumerGroupHeartbeatRequest.rack_id": Pool((None,), ("", "a")),
            # Producing.
            "acks": Pool((-1, -1, 1), (0, 2, -2, SHORT_MAX)),
            "records": Pool(self._sound_batches(), self._odd_batches()),
            "ProduceRequest.transactional_id": Pool((None, None, None, named("open")), transactional_ids.odd),
            # Groups.
            "group_id": groups,
            "group_ids": groups,
            "groups": groups,
            "groups_names": groups,
            "member_id": members,
            "generation_id": generations,
            "generation_id_or_member_epoch": generations,
            "member_epoch": generations,
            "group_instance_id": Pool((None,), ("", "one", " ")),
            "instance_id": Pool((None,), ("", "one")),
            "reason": Pool((None, ""), ("why", "x" * 300)),
            "session_timeout_ms": Pool((10_000,), (-1, 0, 1, 5_999, 1_800_001, INT_MAX)),
            "rebalance_timeout_ms": Pool((100,), (-1, 0, 1)),
            "ConsumerGroupHeartbeatRequest.rebalance_timeout_ms": Pool((300_000, -1), (0, -2, 1, INT_MAX)),
            "protocol_type": Pool(("consumer",), ("", "other")),
            "SyncGroupRequest.protocol_type": Pool(("consumer",), ("", "other", None)),
            "protocol_name": Pool(("range",), ("", "other", None)),
            "JoinGroupRequestProtocol.name": Pool(("range",), ("", "other")),
            "metadata": Pool((SUBSCRIPTION,), (b"", b"odd")),
            "assignment": Pool((b"mine",), (b"",)),
            "subscribed_topic_names": Pool((named("victim"),), ("", "unknown", "a/b", *INTERNAL)),
            "subscribed_topic_regex": patterns,
            "server_assignor": Pool((None,), ("uniform", "range", "", "other")),
            "committed_metadata": texts,
            "states_filter": Pool(("Stable",), ("stable", "Empty", "Nonsense", "", "Dead", "Assigning")),
            "types_filter": Pool(("classic",), ("Consumer", "nonsense", "", "share", "streams")),
            "key": Pool((*groups.sound, *transactional_ids.sound), ("", " ", "a:b:0", "x" * 300)),
            "coordinator_keys": Pool((*groups.sound, *transactional_ids.sound), ("", " ", "a:b:0", "x" * 300)),
            "key_type": Pool((0, 1), (2, 3, -1, 127)),
            # Transactions.
            "transactional_id": transactional_ids,
            "transactional_ids": transactional_ids,
            "v3_and_below_transactional_id": transactional_ids,
            "InitProducerIdRequest.transactional_id": Pool((None, named("idle"), named("done")), transactional_ids.odd),
            "transaction_timeout_ms": Pool((60_000,), (0, -1, 900_000, 900_001, INT_MAX)),
            "producer_id": producer_ids,
            "v3_and_below_producer_id": producer_ids,
            "InitProducerIdRequest.producer_id": Pool((-1,), (*producer_ids.sound, *producer_ids.odd)),
            "producer_epoch": producer_epochs,
            "v3_and_below_producer_epoch": producer_epochs,
            "InitProducerIdRequest.producer_epoch": Pool((-1,), (*producer_epochs.sound, *producer_epochs.odd)),
            "transaction_version": Pool((0, 1, 2), (-1, 3, 127)),
            "coordinator_epoch": Pool((0,), (-1, 1, 99, INT_MAX)),
            "state_filters": Pool(("Ongoing", "Empty"), ("ongoing", "Nonsense", "", "Dead")),
            "producer_id_filters": producer_ids,
            "duration_filter": Pool((-1,), (0, -5, 10_000_000_000_000, LONG_MAX)),
            "transactional_id_pattern": patterns,
            # Settings.
            "resource_type": Pool((2, 2, 2, 32, 16), (0, 1, 3, 4, 8, 64, -1, 127)),
            "resource_name": resources,
            "resource_types": Pool((2, 4, 8, 16, 32), (0, 1, 3, 64, -1)),
            "configuration_keys": Pool(("retention.ms", "segment.bytes"), ("", "unknown", "retention.bytes")),
            "CreatableTopicConfig.name": settings,
            "CreatableTopicConfig.value": values,
            "AlterableConfig.name": Pool(
                (*settings.sound, *GROUP_SETTINGS, *CLIENT_METRICS_SETTINGS), (*settings.odd, "root", "kafka")
            ),
            "AlterableConfig.value": values,
            "config_operation": Pool((0, 0, 0, 1), (2, 3, 4, -1, 127)),
            "feature": Pool(
                ("metadata.version", "transaction.version", "group.version", "kraft.version"),
                ("", "unknown", "eligible.leader.replicas.version", "share.version"),
            ),
            "max_version_level": Pool((0, 1, 2, 30), (-1, 3, 99, SHORT_MAX, 7, 6)),
            "upgrade_type": Pool((1, 2, 3), (0, 4, -1)),
            "timeout_ms": Pool((30_000,), (1000,)),
            "endpoint_type": Pool((1,), (0, 2, 3, -1)),
            "client_software_name": Pool(("odd",), ("", "-odd", "odd!", "x" * 300)),
            "client_software_version": Pool(("1",), ("", "1_0", "1.0-")),
        }

    def _sound_batches(self) -> tuple[Any, ...]:
        return (
            Batch(),
            Batch(values=(b"a", b"b")),
            Batch(codec=Codec.GZIP),
            Batch(codec=Codec.ZSTD),
            self._of("idempotent", sequence=0),
            self._of("idempotent", sequence=7),
            self._of("open", sequence=1, transactional=True),
        )

    def _odd_batches(self) -> tuple[Any, ...]:
        return (
            b"",
            b"odd",
            Batch(times=2),
            Batch(cut=1),
            Batch(keys=(None,)),
            Batch(values=(None,)),
            Batch(values=(b"x" * 400,)),
            Batch(timestamp=-1),
            Batch(timestamp=LONG_MAX),
            Batch(timestamp=TIMESTAMP + 10**12),
            Batch(transactional=True),
            Batch(producer_id=-2),
            Batch(producer_id=STRANGER_ID, epoch=0, sequence=0),
            Batch(producer_id=STRANGER_ID, epoch=0, sequence=5),
            Batch(producer_id=STRANGER_ID, epoch=-1, sequence=0),
            Batch(producer_id=STRANGER_ID, epoch=0, sequence=-1),
            Batch(producer_id=STRANGER_ID, epoch=0, sequence=0, transactional=True),
            *(self._of("idempotent", sequence=sequence) for sequence in (1, 2, 3, 6, 8, INT_MAX)),
            self._of("idempotent", sequence=7, transactional=True),
            self._of("open", sequence=0, transactional=True),
            self._of("open", sequence=1),
            self._of("open", sequence=5, transactional=True),
            self._of("idle", sequence=0, transactional=True),
            self._of("done", sequence=1, transactional=True),
            Batch(codec=Codec.SNAPPY),
            Batch(codec=Codec.LZ4),
            *(
                Batch(values=(b"a", b"b"), patch=((name, value),))
                for name, value in (
                    ("base_offset", 5),
                    ("base_offset", -1),
                    ("leader_epoch", 99),
                    ("magic", 1),
                    ("magic", 0),
                    ("magic", 3),
                    ("magic", -1),
                    ("crc", 0),
                    ("length", 10),
                    ("length", 10_000),
                    ("length", -1),
                    ("attributes", 5),
                    ("attributes", 8),
                    ("attributes", 0x20),
                    ("attributes", 0x30),
                    ("attributes", 0x40),
                    ("attributes", 0x80),
                    ("last_offset_delta", 0),
                    ("last_offset_delta", 5),
                    ("last_offset_delta", -1),
                    ("base_timestamp", 0),
                    ("base_timestamp", -1),
                    ("max_timestamp", 0),
                    ("max_timestamp", LONG_MAX),
                    ("base_sequence", 0),
                    ("producer_epoch", 0),
                    ("count", 0),
                    ("count", 1),
                    ("count", 3),
                    ("count", -1),
                )
            ),
        )

    def _of(self, producer: str, **fields: Any) -> Batch:
        name = self._world.named(producer)
        return Batch(producer_id=Given("producer_id", name), epoch=Given("producer_epoch", name), **fields)
