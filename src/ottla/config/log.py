"""The broker's settings about logs: directories, maintenance intervals and its costs."""

from ottla.config.inert import NO_CORDON, NO_PEERS, NO_PLUGINS
from ottla.config.notation import (
    DAY,
    DOUBLE_MAX,
    MINUTE,
    SECOND,
    Bool,
    Bytes,
    ClassName,
    Double,
    Int,
    IntMs,
    KiB,
    ListOf,
    LongBytes,
    MiB,
    Ms,
    optional,
    setting,
)

# Directories

LOG_DIR = setting(
    "log.dir",
    ListOf,
    default=("/tmp/kafka-logs",),
    may_be_empty=False,
    doc="The directories of the logs; counts where log.dirs is not set.",
)
LOG_DIRS = setting(
    "log.dirs",
    ListOf,
    default=LOG_DIR.default,
    may_be_empty=False,
    falls_back_to=((LOG_DIR, 1),),
    doc="The directories of the logs, separated by commas, one per disk. A new partition goes where the fewest bytes "
    "are; a directory that fails goes offline and the node goes on with the others.",
)
CORDONED_LOG_DIRS = setting(
    "cordoned.log.dirs",
    ListOf,
    default=(),
    per_broker=True,
    inert=NO_CORDON,
    doc="Directories of log.dirs that get no new partitions; * for all.",
)
LOG_DIR_FAILURE_TIMEOUT_MS = setting(
    "log.dir.failure.timeout.ms",
    Ms,
    default=30 * SECOND,
    at_least=1,
    inert=NO_PEERS,
    doc="Stop the node when it could not tell the controller of a failed directory for this long.",
)
NUM_RECOVERY_THREADS_PER_DATA_DIR = setting(
    "num.recovery.threads.per.data.dir",
    Int,
    default=2,
    at_least=1,
    live=True,
    doc="How many logs of one directory are recovered at a time at start-up.",
)

# Upkeep

LOG_INITIAL_TASK_DELAY_MS = setting(
    "log.initial.task.delay.ms",
    Ms,
    default=30 * SECOND,
    at_least=0,
    internal=True,
    doc="Upkeep of logs begins this long after the start.",
)
LOG_RETENTION_CHECK_INTERVAL_MS = setting(
    "log.retention.check.interval.ms",
    Ms,
    default=5 * MINUTE,
    at_least=1,
    doc="How often to look for segments that retention removes.",
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = setting(
    "log.flush.offset.checkpoint.interval.ms",
    IntMs,
    default=60 * SECOND,
    at_least=0,
    doc="How often to write down up to where each log is on disk, from where recovery begins.",
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS = setting(
    "log.flush.start.offset.checkpoint.interval.ms",
    IntMs,
    default=60 * SECOND,
    at_least=0,
    doc="How often to write down where each log starts, so that deleted records stay deleted.",
)
PRODUCER_ID_EXPIRATION_MS = setting(
    "producer.id.expiration.ms",
    IntMs,
    default=1 * DAY,
    at_least=1,
    live=True,
    doc="Forget an idempotent producer that wrote nothing to a partition for this long.",
)
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS = setting(
    "producer.id.expiration.check.interval.ms",
    IntMs,
    default=10 * MINUTE,
    at_least=1,
    internal=True,
    doc="How often to look for producers to forget.",
)

# Compaction

LOG_CLEANER_ENABLE = setting(
    "log.cleaner.enable",
    Bool,
    default=True,
    doc="Compact logs at all. Without it, logs with cleanup.policy=compact grow for ever.",
)
LOG_CLEANER_THREADS = setting(
    "log.cleaner.threads", Int, default=1, at_least=0, live=True, doc="How many logs are compacted at a time."
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = setting(
    "log.cleaner.io.max.bytes.per.second",
    Double,
    default=DOUBLE_MAX,
    live=True,
    doc="What compaction may read and write per second, together.",
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE = setting(
    "log.cleaner.dedupe.buffer.size",
    LongBytes,
    default=128 * MiB,
    live=True,
    doc="Memory for the keys of the logs being compacted, shared by the threads: 24 bytes a key.",
)
LOG_CLEANER_IO_BUFFER_SIZE = setting(
    "log.cleaner.io.buffer.size",
    Bytes,
    default=512 * KiB,
    at_least=0,
    live=True,
    doc="Memory for reading and writing in compaction, shared by the threads.",
)
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR = setting(
    "log.cleaner.io.buffer.load.factor",
    Double,
    default=0.9,
    live=True,
    doc="How full the memory for keys may become. Fuller compacts more at once and finds keys more slowly.",
)
LOG_CLEANER_BACKOFF_MS = setting(
    "log.cleaner.backoff.ms",
    Ms,
    default=15 * SECOND,
    at_least=0,
    live=True,
    doc="How long to wait when no log needs compaction.",
)

# Topics

NUM_PARTITIONS = setting(
    "num.partitions", Int, default=1, at_least=1, doc="Partitions of a topic made without a number."
)
AUTO_CREATE_TOPICS_ENABLE = setting(
    "auto.create.topics.enable",
    Bool,
    default=True,
    doc="Make a topic when a client first asks for it.",
)
DELETE_TOPIC_ENABLE = setting("delete.topic.enable", Bool, default=True, doc="Let clients delete topics.")
CREATE_TOPIC_POLICY_CLASS_NAME = setting(
    "create.topic.policy.class.name",
    optional(ClassName),
    default=None,
    inert=NO_PLUGINS,
    doc="A class that may refuse new topics.",
)
ALTER_CONFIG_POLICY_CLASS_NAME = setting(
    "alter.config.policy.class.name",
    optional(ClassName),
    default=None,
    inert=NO_PLUGINS,
    doc="A class that may refuse changes of settings.",
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE = setting(
    "transaction.partition.verification.enable",
    Bool,
    default=True,
    live=True,
    doc="Accept a transaction's records only in partitions that its coordinator knows to be part of it.",
)
