"""Consumer groups: the coordinator, committed offsets, and the two protocols of consumers."""

from ottla.config.inert import NO_CACHED_BUFFERS, NO_LINGER, ONE_LOOP
from ottla.config.notation import (
    INT_MAX,
    MINUTE,
    SECOND,
    Bytes,
    Int,
    IntMs,
    KiB,
    ListOf,
    MiB,
    Minutes,
    Ms,
    Scope,
    Short,
    String,
    setting,
)

# Coordinator
GROUP_COORDINATOR_REBALANCE_PROTOCOLS = setting(
    "group.coordinator.rebalance.protocols",
    ListOf,
    default=("classic", "consumer", "streams"),
    one_of=("consumer", "classic", "share", "streams"),
    may_be_empty=False,
    doc="Which protocols groups may use; classic cannot be left out.",
)
GROUP_COORDINATOR_THREADS = setting(
    "group.coordinator.threads",
    Int,
    default=4,
    at_least=1,
    inert=ONE_LOOP,
    doc="Threads that work on requests to the coordinator.",
)
GROUP_COORDINATOR_BACKGROUND_THREADS = setting(
    "group.coordinator.background.threads",
    Int,
    default=2,
    at_least=1,
    inert=ONE_LOOP,
    doc="Threads for the coordinator's work that no request waits for.",
)
GROUP_COORDINATOR_APPEND_LINGER_MS = setting(
    "group.coordinator.append.linger.ms",
    IntMs,
    default=-1,
    at_least=-1,
    inert=NO_LINGER,
    doc="How long the coordinator collects writes. -1: as long as the load asks for.",
)
GROUP_COORDINATOR_CACHED_BUFFER_MAX_BYTES = setting(
    "group.coordinator.cached.buffer.max.bytes",
    Bytes,
    default=1 * MiB + 12,
    at_least=512 * KiB,
    live=True,
    inert=NO_CACHED_BUFFERS,
    doc="The largest buffer that the coordinator keeps to use again.",
)

# Committed offsets
OFFSETS_TOPIC_NUM_PARTITIONS = setting(
    "offsets.topic.num.partitions",
    Int,
    default=50,
    at_least=1,
    doc="Partitions of the topic of committed offsets. A group belongs to one of them by its name, so never change it.",
)
OFFSETS_TOPIC_REPLICATION_FACTOR = setting(
    "offsets.topic.replication.factor",
    Short,
    default=3,
    at_least=1,
    doc="Replicas of the topic of committed offsets, or one per broker if there are fewer when it is made.",
)
OFFSETS_TOPIC_SEGMENT_BYTES = setting(
    "offsets.topic.segment.bytes",
    Bytes,
    default=100 * MiB,
    at_least=1,
    doc="Segment size of the topic of committed offsets: small ones are compacted and loaded sooner. "
    "It is made with this as its segment.bytes, which must be at least 1 MiB.",
)
OFFSETS_TOPIC_COMPRESSION_CODEC = setting(
    "offsets.topic.compression.codec",
    Int,
    default=0,
    at_least=0,
    at_most=4,
    doc="How the topic of committed offsets is compressed: 0 not, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
)
OFFSETS_LOAD_BUFFER_SIZE = setting(
    "offsets.load.buffer.size",
    Bytes,
    default=5 * MiB,
    at_least=1,
    doc="How much is read at a time when a coordinator takes a partition of committed offsets over.",
)
OFFSETS_COMMIT_TIMEOUT_MS = setting(
    "offsets.commit.timeout.ms",
    IntMs,
    default=5 * SECOND,
    at_least=1,
    doc="A commit fails that is not on enough replicas within this time.",
)
OFFSET_METADATA_MAX_BYTES = setting(
    "offset.metadata.max.bytes",
    Bytes,
    default=4 * KiB,
    doc="The longest text that a consumer may commit along with an offset.",
)
OFFSETS_RETENTION_MINUTES = setting(
    "offsets.retention.minutes",
    Minutes,
    default=10_080,
    at_least=1,
    doc="Forget the offsets of a group that has had no members for this long; of a consumer without a group, since "
    "its last commit.",
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = setting(
    "offsets.retention.check.interval.ms",
    Ms,
    default=10 * MINUTE,
    at_least=1,
    doc="How often to look for offsets to forget.",
)

# Groups of the classic protocol
GROUP_MAX_SESSION_TIMEOUT_MS = setting(
    "group.max.session.timeout.ms",
    IntMs,
    default=30 * MINUTE,
    doc="The longest session a member may ask for. Longer: a dead member is missed later.",
)
GROUP_MIN_SESSION_TIMEOUT_MS = setting(
    "group.min.session.timeout.ms",
    IntMs,
    default=6 * SECOND,
    not_above=(GROUP_MAX_SESSION_TIMEOUT_MS,),
    doc="The shortest session a member may ask for.",
)
GROUP_INITIAL_REBALANCE_DELAY_MS = setting(
    "group.initial.rebalance.delay.ms",
    IntMs,
    default=3 * SECOND,
    doc="A new group waits this long for more members before it first shares out partitions.",
)
GROUP_MAX_SIZE = setting("group.max.size", Int, default=INT_MAX, at_least=1, doc="How many members a group may have.")

# Groups of the consumer protocol (KIP-848)
# Time
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = setting(
    "group.consumer.min.session.timeout.ms",
    IntMs,
    default=45 * SECOND,
    at_least=1,
    doc="The shortest session that a group may set.",
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = setting(
    "group.consumer.max.session.timeout.ms",
    IntMs,
    default=1 * MINUTE,
    at_least=1,
    doc="The longest session that a group may set.",
)
GROUP_CONSUMER_SESSION_TIMEOUT_MS = setting(
    "group.consumer.session.timeout.ms",
    IntMs,
    default=45 * SECOND,
    at_least=1,
    not_below=GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    not_above=(GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,),
    doc="A member that was silent for this long loses what it holds to others.",
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = setting(
    "group.consumer.min.heartbeat.interval.ms",
    IntMs,
    default=5 * SECOND,
    at_least=1,
    doc="The shortest interval that a group may set.",
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = setting(
    "group.consumer.max.heartbeat.interval.ms",
    IntMs,
    default=15 * SECOND,
    at_least=1,
    doc="The longest interval that a group may set.",
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = setting(
    "group.consumer.heartbeat.interval.ms",
    IntMs,
    default=5 * SECOND,
    at_least=1,
    not_below=GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    not_above=(GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,),
    below=GROUP_CONSUMER_SESSION_TIMEOUT_MS,
    doc="How often members are told to send heartbeats; changes reach them with the answers.",
)
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = setting(
    "group.consumer.min.assignment.interval.ms",
    IntMs,
    default=0,
    at_least=0,
    doc="The shortest pause that a group may set.",
)
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = setting(
    "group.consumer.max.assignment.interval.ms",
    IntMs,
    default=15 * SECOND,
    at_least=0,
    doc="The longest pause that a group may set.",
)
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = setting(
    "group.consumer.assignment.interval.ms",
    IntMs,
    default=1 * SECOND,
    at_least=0,
    not_below=GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    not_above=(GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,),
    live=True,
    doc="The shortest pause between two assignments of a group.",
)

# Members
GROUP_CONSUMER_MAX_SIZE = setting(
    "group.consumer.max.size",
    Int,
    default=INT_MAX,
    at_least=1,
    doc="How many members a group may have.",
)
GROUP_CONSUMER_ASSIGNORS = setting(
    "group.consumer.assignors",
    ListOf,
    default=("uniform", "range"),
    may_be_empty=False,
    doc="What shares partitions out, by name; the first is the default.",
)
GROUP_CONSUMER_MIGRATION_POLICY = setting(
    "group.consumer.migration.policy",
    String,
    default="bidirectional",
    one_of=("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
    any_case=True,
    doc="Whether a group may change between the classic and the consumer protocol while it runs, and which way.",
)
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS = setting(
    "group.consumer.regex.refresh.interval.ms",
    IntMs,
    default=10 * MINUTE,
    at_least=10 * SECOND,
    internal=True,
    doc="How often to look for topics that a subscription by pattern newly matches.",
)

# What a group may set for itself
CONSUMER_SESSION_TIMEOUT_MS = setting(
    "consumer.session.timeout.ms",
    IntMs,
    default=45 * SECOND,
    at_least=1,
    not_below=GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
    not_above=(GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,),
    scope=Scope.GROUP,
    falls_back_to=((GROUP_CONSUMER_SESSION_TIMEOUT_MS, 1),),
    doc="group.consumer.session.timeout.ms for one group.",
)
CONSUMER_HEARTBEAT_INTERVAL_MS = setting(
    "consumer.heartbeat.interval.ms",
    IntMs,
    default=5 * SECOND,
    at_least=1,
    not_below=GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    not_above=(GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,),
    below=CONSUMER_SESSION_TIMEOUT_MS,
    scope=Scope.GROUP,
    falls_back_to=((GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS, 1),),
    doc="group.consumer.heartbeat.interval.ms for one group.",
)
CONSUMER_ASSIGNMENT_INTERVAL_MS = setting(
    "consumer.assignment.interval.ms",
    IntMs,
    default=1 * SECOND,
    at_least=0,
    not_below=GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    not_above=(GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,),
    scope=Scope.GROUP,
    falls_back_to=((GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS, 1),),
    doc="group.consumer.assignment.interval.ms for one group.",
)
