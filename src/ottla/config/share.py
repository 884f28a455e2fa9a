"""Share groups (KIP-932): members take records, not partitions, and acknowledge each."""

from ottla.config.inert import NO_SHARE
from ottla.config.notation import (
    HOUR,
    MINUTE,
    SECOND,
    Bool,
    Bytes,
    Int,
    IntMs,
    KiB,
    ListOf,
    MiB,
    Scope,
    ShareStart,
    Short,
    String,
    setting,
)

# Time
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS = setting(
    "group.share.min.session.timeout.ms",
    IntMs,
    default=45 * SECOND,
    at_least=1,
    inert=NO_SHARE,
    doc="The shortest session that a group may set.",
)
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS = setting(
    "group.share.max.session.timeout.ms",
    IntMs,
    default=1 * MINUTE,
    at_least=1,
    inert=NO_SHARE,
    doc="The longest session that a group may set.",
)
GROUP_SHARE_SESSION_TIMEOUT_MS = setting(
    "group.share.session.timeout.ms",
    IntMs,
    default=45 * SECOND,
    at_least=1,
    not_below=GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
    not_above=(GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,),
    inert=NO_SHARE,
    doc="A member that was silent for this long loses what it holds to others.",
)
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS = setting(
    "group.share.min.heartbeat.interval.ms",
    IntMs,
    default=5 * SECOND,
    at_least=1,
    inert=NO_SHARE,
    doc="The shortest interval that a group may set.",
)
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS = setting(
    "group.share.max.heartbeat.interval.ms",
    IntMs,
    default=15 * SECOND,
    at_least=1,
    inert=NO_SHARE,
    doc="The longest interval that a group may set.",
)
GROUP_SHARE_HEARTBEAT_INTERVAL_MS = setting(
    "group.share.heartbeat.interval.ms",
    IntMs,
    default=5 * SECOND,
    at_least=1,
    not_below=GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
    not_above=(GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,),
    below=GROUP_SHARE_SESSION_TIMEOUT_MS,
    inert=NO_SHARE,
    doc="How often members are told to send heartbeats; changes reach them with the answers.",
)
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS = setting(
    "group.share.min.assignment.interval.ms",
    IntMs,
    default=0,
    at_least=0,
    inert=NO_SHARE,
    doc="The shortest pause that a group may set.",
)
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS = setting(
    "group.share.max.assignment.interval.ms",
    IntMs,
    default=15 * SECOND,
    at_least=0,
    inert=NO_SHARE,
    doc="The longest pause that a group may set.",
)
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS = setting(
    "group.share.assignment.interval.ms",
    IntMs,
    default=1 * SECOND,
    at_least=0,
    not_below=GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS,
    not_above=(GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS,),
    live=True,
    inert=NO_SHARE,
    doc="The shortest pause between two assignments of a group.",
)

# Members
GROUP_SHARE_MAX_SIZE = setting(
    "group.share.max.size",
    Int,
    default=200,
    at_least=1,
    at_most=1000,
    inert=NO_SHARE,
    doc="How many members a group may have.",
)
GROUP_SHARE_ASSIGNORS = setting(
    "group.share.assignors",
    ListOf,
    default=("simple",),
    may_be_empty=False,
    inert=NO_SHARE,
    doc="What shares partitions out, by name; exactly one.",
)
GROUP_SHARE_INITIALIZE_RETRY_INTERVAL_MS = setting(
    "group.share.initialize.retry.interval.ms",
    IntMs,
    default=30 * SECOND,
    at_least=1,
    internal=True,
    inert=NO_SHARE,
    doc="How long to wait before a partition that could not be prepared for a group is tried again.",
)

# Records in delivery
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT = setting(
    "group.share.min.delivery.count.limit",
    Int,
    default=2,
    at_least=2,
    at_most=5,
    inert=NO_SHARE,
    doc="The lowest limit that a group may set.",
)
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT = setting(
    "group.share.max.delivery.count.limit",
    Int,
    default=10,
    at_least=5,
    at_most=25,
    inert=NO_SHARE,
    doc="The highest limit that a group may set.",
)
GROUP_SHARE_DELIVERY_COUNT_LIMIT = setting(
    "group.share.delivery.count.limit",
    Int,
    default=5,
    at_least=2,
    at_most=10,
    not_below=GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT,
    not_above=(GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT,),
    inert=NO_SHARE,
    doc="How often a record is delivered before it counts as undeliverable.",
)
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS = setting(
    "group.share.min.record.lock.duration.ms",
    IntMs,
    default=15 * SECOND,
    at_least=1 * SECOND,
    at_most=30 * SECOND,
    inert=NO_SHARE,
    doc="The shortest time that a group may set.",
)
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS = setting(
    "group.share.max.record.lock.duration.ms",
    IntMs,
    default=1 * MINUTE,
    at_least=30 * SECOND,
    at_most=1 * HOUR,
    inert=NO_SHARE,
    doc="The longest time that a group may set.",
)
GROUP_SHARE_RECORD_LOCK_DURATION_MS = setting(
    "group.share.record.lock.duration.ms",
    IntMs,
    default=30 * SECOND,
    at_least=1 * SECOND,
    at_most=1 * HOUR,
    not_below=GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
    not_above=(GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,),
    inert=NO_SHARE,
    doc="How long a record stays with the member it was delivered to; then others may get it.",
)
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS = setting(
    "group.share.min.partition.max.record.locks",
    Int,
    default=100,
    at_least=100,
    at_most=2000,
    inert=NO_SHARE,
    doc="The lowest number that a group may set.",
)
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS = setting(
    "group.share.max.partition.max.record.locks",
    Int,
    default=4000,
    at_least=2000,
    at_most=10_000,
    inert=NO_SHARE,
    doc="The highest number that a group may set.",
)
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS = setting(
    "group.share.partition.max.record.locks",
    Int,
    default=2000,
    at_least=100,
    at_most=10_000,
    not_below=GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
    not_above=(GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,),
    inert=NO_SHARE,
    doc="How many records of a partition may be in delivery at a time.",
)
GROUP_SHARE_MAX_SHARE_SESSIONS = setting(
    "group.share.max.share.sessions",
    Int,
    default=2000,
    at_least=1,
    inert=NO_SHARE,
    doc="How many share sessions a broker remembers.",
)
GROUP_SHARE_PERSISTER_CLASS_NAME = setting(
    "group.share.persister.class.name",
    String,
    default="org.apache.kafka.server.share.persister.DefaultStatePersister",
    internal=True,
    inert=NO_SHARE,
    doc="What keeps the state of share groups.",
)
SHARE_FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS = setting(
    "share.fetch.purgatory.purge.interval.requests",
    Int,
    default=1000,
    inert=NO_SHARE,
    doc="How many share fetches end before finished ones are cleared away.",
)

# Coordinator
SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS = setting(
    "share.coordinator.state.topic.num.partitions",
    Int,
    default=50,
    at_least=1,
    inert=NO_SHARE,
    doc="Partitions of the topic of share groups' state; never change it.",
)
SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR = setting(
    "share.coordinator.state.topic.replication.factor",
    Short,
    default=3,
    at_least=1,
    inert=NO_SHARE,
    doc="Replicas of the topic of share groups' state.",
)
SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR = setting(
    "share.coordinator.state.topic.min.isr",
    Short,
    default=2,
    at_least=1,
    inert=NO_SHARE,
    doc="min.insync.replicas of the topic of share groups' state.",
)
SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES = setting(
    "share.coordinator.state.topic.segment.bytes",
    Bytes,
    default=100 * MiB,
    at_least=1,
    inert=NO_SHARE,
    doc="Segment size of the topic of share groups' state.",
)
SHARE_COORDINATOR_STATE_TOPIC_COMPRESSION_CODEC = setting(
    "share.coordinator.state.topic.compression.codec",
    Int,
    default=0,
    inert=NO_SHARE,
    doc="How the topic of share groups' state is compressed: 0 not, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
)
SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS = setting(
    "share.coordinator.state.topic.prune.interval.ms",
    IntMs,
    default=5 * MINUTE,
    at_least=1,
    internal=True,
    inert=NO_SHARE,
    doc="How often to delete state that nobody needs any more.",
)
SHARE_COORDINATOR_THREADS = setting(
    "share.coordinator.threads", Int, default=1, at_least=1, inert=NO_SHARE, doc="Threads of the coordinator."
)
SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT = setting(
    "share.coordinator.snapshot.update.records.per.snapshot",
    Int,
    default=500,
    at_least=0,
    at_most=500,
    inert=NO_SHARE,
    doc="After this many changes the state is written whole.",
)
SHARE_COORDINATOR_COLD_PARTITION_SNAPSHOT_INTERVAL_MS = setting(
    "share.coordinator.cold.partition.snapshot.interval.ms",
    IntMs,
    default=5 * MINUTE,
    at_least=1,
    internal=True,
    inert=NO_SHARE,
    doc="How often the state of partitions without changes is written whole.",
)
SHARE_COORDINATOR_LOAD_BUFFER_SIZE = setting(
    "share.coordinator.load.buffer.size",
    Bytes,
    default=5 * MiB,
    at_least=1,
    inert=NO_SHARE,
    doc="How much is read at a time when a coordinator takes a partition of state over.",
)
SHARE_COORDINATOR_APPEND_LINGER_MS = setting(
    "share.coordinator.append.linger.ms",
    IntMs,
    default=-1,
    at_least=-1,
    inert=NO_SHARE,
    doc="How long the coordinator collects writes. -1: as long as the load asks for.",
)
SHARE_COORDINATOR_WRITE_TIMEOUT_MS = setting(
    "share.coordinator.write.timeout.ms",
    IntMs,
    default=5 * SECOND,
    at_least=1,
    inert=NO_SHARE,
    doc="A write of state fails that is not on enough replicas within this time.",
)
SHARE_COORDINATOR_CACHED_BUFFER_MAX_BYTES = setting(
    "share.coordinator.cached.buffer.max.bytes",
    Bytes,
    default=1 * MiB + 12,
    at_least=512 * KiB,
    live=True,
    inert=NO_SHARE,
    doc="The largest buffer that the coordinator keeps to use again.",
)

# What a group may set for itself
SHARE_SESSION_TIMEOUT_MS = setting(
    "share.session.timeout.ms",
    IntMs,
    default=45 * SECOND,
    at_least=1,
    not_below=GROUP_SHARE_MIN_SESSION_TIMEOUT_MS,
    not_above=(GROUP_SHARE_MAX_SESSION_TIMEOUT_MS,),
    scope=Scope.GROUP,
    falls_back_to=((GROUP_SHARE_SESSION_TIMEOUT_MS, 1),),
    inert=NO_SHARE,
    doc="group.share.session.timeout.ms for one group.",
)
SHARE_HEARTBEAT_INTERVAL_MS = setting(
    "share.heartbeat.interval.ms",
    IntMs,
    default=5 * SECOND,
    at_least=1,
    not_below=GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS,
    not_above=(GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS,),
    below=SHARE_SESSION_TIMEOUT_MS,
    scope=Scope.GROUP,
    falls_back_to=((GROUP_SHARE_HEARTBEAT_INTERVAL_MS, 1),),
    inert=NO_SHARE,
    doc="group.share.heartbeat.interval.ms for one group.",
)
SHARE_ASSIGNMENT_INTERVAL_MS = setting(
    "share.assignment.interval.ms",
    IntMs,
    default=1 * SECOND,
    at_least=0,
    not_below=GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS,
    not_above=(GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS,),
    scope=Scope.GROUP,
    falls_back_to=((GROUP_SHARE_ASSIGNMENT_INTERVAL_MS, 1),),
    inert=NO_SHARE,
    doc="group.share.assignment.interval.ms for one group.",
)
SHARE_RECORD_LOCK_DURATION_MS = setting(
    "share.record.lock.duration.ms",
    IntMs,
    default=30 * SECOND,
    at_least=1 * SECOND,
    not_below=GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
    not_above=(GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,),
    scope=Scope.GROUP,
    falls_back_to=((GROUP_SHARE_RECORD_LOCK_DURATION_MS, 1),),
    inert=NO_SHARE,
    doc="group.share.record.lock.duration.ms for one group.",
)
SHARE_DELIVERY_COUNT_LIMIT = setting(
    "share.delivery.count.limit",
    Int,
    default=5,
    at_least=2,
    not_below=GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT,
    not_above=(GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT,),
    scope=Scope.GROUP,
    falls_back_to=((GROUP_SHARE_DELIVERY_COUNT_LIMIT, 1),),
    inert=NO_SHARE,
    doc="group.share.delivery.count.limit for one group.",
)
SHARE_PARTITION_MAX_RECORD_LOCKS = setting(
    "share.partition.max.record.locks",
    Int,
    default=2000,
    at_least=100,
    not_below=GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
    not_above=(GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,),
    scope=Scope.GROUP,
    falls_back_to=((GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS, 1),),
    inert=NO_SHARE,
    doc="group.share.partition.max.record.locks for one group.",
)
SHARE_AUTO_OFFSET_RESET = setting(
    "share.auto.offset.reset",
    ShareStart,
    default="latest",
    scope=Scope.GROUP,
    inert=NO_SHARE,
    doc="Where a new group begins: latest, earliest, or by_duration: and how far back, as in by_duration:P1DT2H.",
)
SHARE_ISOLATION_LEVEL = setting(
    "share.isolation.level",
    String,
    default="read_uncommitted",
    one_of=("read_committed", "read_uncommitted"),
    scope=Scope.GROUP,
    inert=NO_SHARE,
    doc="Whether members get records of transactions that are not committed.",
)
SHARE_RENEW_ACKNOWLEDGE_ENABLE = setting(
    "share.renew.acknowledge.enable",
    Bool,
    default=True,
    scope=Scope.GROUP,
    inert=NO_SHARE,
    doc="Let members keep a record for longer than its lock lasts by renewing it.",
)
