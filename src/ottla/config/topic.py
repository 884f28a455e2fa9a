"""The settings a topic may override, and the broker's names for their defaults."""

from ottla.config.inert import NO_PREALLOCATION, NO_REPLICATION, NO_TIERS
from ottla.config.notation import (
    DAY,
    HOUR,
    LONG_MAX,
    MINUTE,
    SECOND,
    Bool,
    Bytes,
    Double,
    GiB,
    Hours,
    Int,
    KiB,
    ListOf,
    Long,
    LongBytes,
    MiB,
    Minutes,
    Ms,
    ReplicaList,
    Scope,
    String,
    optional,
    setting,
)

# Segments

INTERNAL_SEGMENT_BYTES = setting(
    "internal.segment.bytes",
    optional(Bytes),
    default=None,
    topic="internal.segment.bytes",
    scope=Scope.TOPIC,
    internal=True,
    doc="Counts instead of segment.bytes, without its lower bound: small segments for tests.",
)
SEGMENT_BYTES = setting(
    "log.segment.bytes",
    Bytes,
    default=1 * GiB,
    at_least=1 * MiB,
    topic="segment.bytes",
    overruled_by=INTERNAL_SEGMENT_BYTES,
    doc="Roll the active segment when the next batch would exceed this size. Only closed segments are removed or "
    "compacted, so this is also the grain of retention.",
)
LOG_ROLL_HOURS = setting(
    "log.roll.hours", Hours, default=168, at_least=1, doc="log.roll.ms in hours; counts where that is not set."
)
SEGMENT_MS = setting(
    "log.roll.ms",
    Ms,
    default=7 * DAY,
    at_least=1,
    topic="segment.ms",
    falls_back_to=((LOG_ROLL_HOURS, HOUR),),
    doc="Roll the active segment this long after its first record, however small it is, so that retention and "
    "compaction can reach it.",
)
LOG_ROLL_JITTER_HOURS = setting(
    "log.roll.jitter.hours",
    Hours,
    default=0,
    at_least=0,
    doc="log.roll.jitter.ms in hours; counts where that is not set.",
)
SEGMENT_JITTER_MS = setting(
    "log.roll.jitter.ms",
    Ms,
    default=0,
    at_least=0,
    topic="segment.jitter.ms",
    falls_back_to=((LOG_ROLL_JITTER_HOURS, HOUR),),
    doc="Roll up to this much earlier than segment.ms says, by chance, so that not all partitions roll together.",
)
SEGMENT_INDEX_BYTES = setting(
    "log.index.size.max.bytes",
    Bytes,
    default=10 * MiB,
    at_least=4,
    topic="segment.index.bytes",
    doc="The most an offset index or a time index may take; a full one makes the segment roll.",
)
INDEX_INTERVAL_BYTES = setting(
    "log.index.interval.bytes",
    Bytes,
    default=4 * KiB,
    at_least=0,
    topic="index.interval.bytes",
    doc="Bytes of log between two index entries. Smaller finds an offset with less reading and makes larger indexes.",
)
PREALLOCATE = setting(
    "log.preallocate",
    Bool,
    default=False,
    topic="preallocate",
    inert=NO_PREALLOCATION,
    doc="Reserve the whole segment on disk when it is made.",
)

# Retention

LOG_RETENTION_HOURS = setting(
    "log.retention.hours",
    Hours,
    default=168,
    doc="log.retention.ms in hours; counts where neither that nor log.retention.minutes is set.",
)
LOG_RETENTION_MINUTES = setting(
    "log.retention.minutes",
    optional(Minutes),
    default=None,
    doc="log.retention.ms in minutes; counts where that is not set.",
)
RETENTION_MS = setting(
    "log.retention.ms",
    Ms,
    default=7 * DAY,
    at_least=-1,
    topic="retention.ms",
    falls_back_to=((LOG_RETENTION_MINUTES, MINUTE), (LOG_RETENTION_HOURS, HOUR)),
    doc="Remove a closed segment once its newest record is older than this, under cleanup.policy=delete. "
    "-1: no limit by time.",
)
RETENTION_BYTES = setting(
    "log.retention.bytes",
    LongBytes,
    default=-1,
    topic="retention.bytes",
    doc="Remove the oldest closed segments of a partition while the rest is at least this large, under "
    "cleanup.policy=delete. The limit is per partition: see ottla.topic.retention.bytes for the whole topic. "
    "-1: no limit.",
)
TOPIC_RETENTION_BYTES = setting(
    "ottla.topic.retention.bytes",
    LongBytes,
    default=-1,
    at_least=-1,
    topic="ottla.topic.retention.bytes",
    doc="Remove the oldest closed segments of a topic, over all its partitions here, until the rest is no larger than "
    "this, under cleanup.policy=delete. -1: no limit.",
)
CLEANUP_POLICY = setting(
    "log.cleanup.policy",
    ListOf,
    default=("delete",),
    one_of=("compact", "delete"),
    topic="cleanup.policy",
    doc="delete: old segments go by time and size. compact: of each key the newest record stays. Both may stand "
    "together; an empty list keeps everything for ever.",
)
FILE_DELETE_DELAY_MS = setting(
    "log.segment.delete.delay.ms",
    Ms,
    default=60 * SECOND,
    at_least=0,
    topic="file.delete.delay.ms",
    doc="A removed file first gets the suffix .deleted and leaves the disk this much later, so that reads under way "
    "can end.",
)

# Compaction

MIN_CLEANABLE_DIRTY_RATIO = setting(
    "log.cleaner.min.cleanable.ratio",
    Double,
    default=0.5,
    at_least=0,
    at_most=1,
    topic="min.cleanable.dirty.ratio",
    doc="Compact a log once this share of it has not been compacted yet. Lower saves space and costs work.",
)
DELETE_RETENTION_MS = setting(
    "log.cleaner.delete.retention.ms",
    Ms,
    default=1 * DAY,
    at_least=0,
    topic="delete.retention.ms",
    doc="How long a tombstone outlives the compaction that first met it. A consumer that reads from the start must "
    "be done within this time, or it may miss that a key was deleted.",
)
MAX_COMPACTION_LAG_MS = setting(
    "log.cleaner.max.compaction.lag.ms",
    Ms,
    default=LONG_MAX,
    at_least=1,
    topic="max.compaction.lag.ms",
    doc="A record waits at most this long before its log is compacted, whatever the dirty ratio; the active segment "
    "rolls in time for that.",
)
MIN_COMPACTION_LAG_MS = setting(
    "log.cleaner.min.compaction.lag.ms",
    Ms,
    default=0,
    at_least=0,
    topic="min.compaction.lag.ms",
    not_above=(MAX_COMPACTION_LAG_MS,),
    doc="Records younger than this are not compacted.",
)

# Durability

FLUSH_MESSAGES = setting(
    "log.flush.interval.messages",
    Long,
    default=LONG_MAX,
    at_least=1,
    topic="flush.messages",
    doc="fsync after this many records. 1: nothing is acknowledged before it is on the disk. The default leaves "
    "writing back to the operating system and relies on replication.",
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS = setting(
    "log.flush.scheduler.interval.ms",
    Ms,
    default=LONG_MAX,
    doc="How often to look for logs whose flush.ms has passed.",
)
FLUSH_MS = setting(
    "log.flush.interval.ms",
    Ms,
    default=LONG_MAX,
    at_least=0,
    topic="flush.ms",
    falls_back_to=((LOG_FLUSH_SCHEDULER_INTERVAL_MS, 1),),
    doc="fsync what has been waiting this long. log.flush.scheduler.interval.ms says how often this is looked at, "
    "so it must be set too.",
)
MIN_INSYNC_REPLICAS = setting(
    "min.insync.replicas",
    Int,
    default=1,
    at_least=1,
    topic="min.insync.replicas",
    doc="With acks=all, accept a write only while at least this many replicas, the leader included, are in sync.",
)
UNCLEAN_LEADER_ELECTION_ENABLE = setting(
    "unclean.leader.election.enable",
    Bool,
    default=False,
    topic="unclean.leader.election.enable",
    inert=NO_REPLICATION,
    doc="Let a replica that is not in sync lead when no other is left. Acknowledged records may be lost.",
)

# Records

MAX_MESSAGE_BYTES = setting(
    "message.max.bytes",
    Bytes,
    default=1 * MiB + 12,
    at_least=0,
    topic="max.message.bytes",
    doc="The largest record batch accepted, as it arrives: compressed, with its header. The default, 1 MiB and the "
    "12 bytes around a batch, fits a full request of a producer with its default max.request.size.",
)
MESSAGE_TIMESTAMP_TYPE = setting(
    "log.message.timestamp.type",
    String,
    default="CreateTime",
    one_of=("CreateTime", "LogAppendTime"),
    topic="message.timestamp.type",
    doc="Whose clock stamps the records: the producer's (CreateTime) or the broker's (LogAppendTime).",
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = setting(
    "log.message.timestamp.before.max.ms",
    Ms,
    default=LONG_MAX,
    at_least=0,
    topic="message.timestamp.before.max.ms",
    doc="Refuse records stamped further in the past than this. Without effect under LogAppendTime.",
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = setting(
    "log.message.timestamp.after.max.ms",
    Ms,
    default=1 * HOUR,
    at_least=0,
    topic="message.timestamp.after.max.ms",
    doc="Refuse records stamped further in the future than this: one of them would keep its whole segment from "
    "expiring. Without effect under LogAppendTime.",
)
COMPRESSION_TYPE = setting(
    "compression.type",
    String,
    default="producer",
    one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    topic="compression.type",
    doc="How batches are stored. producer: as they came. Anything else: batches that came otherwise are compressed "
    "anew, which costs the broker time.",
)
COMPRESSION_GZIP_LEVEL = setting(
    "compression.gzip.level",
    Int,
    default=-1,
    at_least=1,
    at_most=9,
    also=(-1,),
    topic="compression.gzip.level",
    doc="The level where compression.type is gzip. -1: the library's own choice.",
)
COMPRESSION_LZ4_LEVEL = setting(
    "compression.lz4.level",
    Int,
    default=9,
    at_least=1,
    at_most=17,
    topic="compression.lz4.level",
    doc="The level where compression.type is lz4.",
)
COMPRESSION_ZSTD_LEVEL = setting(
    "compression.zstd.level",
    Int,
    default=3,
    at_least=-131_072,
    at_most=22,
    topic="compression.zstd.level",
    doc="The level where compression.type is zstd.",
)

# Replication and tiers

LEADER_REPLICATION_THROTTLED_REPLICAS = setting(
    "leader.replication.throttled.replicas",
    ReplicaList,
    default=(),
    topic="leader.replication.throttled.replicas",
    scope=Scope.TOPIC,
    inert=NO_REPLICATION,
    doc="Replicas (partition:broker, or * for all) whose leader sends to them no faster than its throttle.",
)
FOLLOWER_REPLICATION_THROTTLED_REPLICAS = setting(
    "follower.replication.throttled.replicas",
    ReplicaList,
    default=(),
    topic="follower.replication.throttled.replicas",
    scope=Scope.TOPIC,
    inert=NO_REPLICATION,
    doc="Replicas (partition:broker, or * for all) that fetch no faster than their broker's throttle.",
)
REMOTE_STORAGE_ENABLE = setting(
    "remote.storage.enable",
    Bool,
    default=False,
    topic="remote.storage.enable",
    scope=Scope.TOPIC,
    inert=NO_TIERS,
    doc="Copy closed segments to remote storage.",
)
REMOTE_LOG_COPY_DISABLE = setting(
    "remote.log.copy.disable",
    Bool,
    default=False,
    topic="remote.log.copy.disable",
    scope=Scope.TOPIC,
    inert=NO_TIERS,
    doc="Copy no more segments to remote storage; those there stay readable.",
)
REMOTE_LOG_DELETE_ON_DISABLE = setting(
    "remote.log.delete.on.disable",
    Bool,
    default=False,
    topic="remote.log.delete.on.disable",
    scope=Scope.TOPIC,
    inert=NO_TIERS,
    doc="Remove a topic's remote segments when its remote storage is switched off.",
)
LOCAL_RETENTION_MS = setting(
    "log.local.retention.ms",
    Ms,
    default=-2,
    at_least=-2,
    topic="local.retention.ms",
    inert=NO_TIERS,
    doc="retention.ms for the local copy of what is stored remotely. -2: the same. -1: no limit.",
)
LOCAL_RETENTION_BYTES = setting(
    "log.local.retention.bytes",
    LongBytes,
    default=-2,
    at_least=-2,
    topic="local.retention.bytes",
    inert=NO_TIERS,
    doc="retention.bytes for the local copy of what is stored remotely. -2: the same. -1: no limit.",
)
