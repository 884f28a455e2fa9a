"""Remote storage of closed segments (KIP-405)."""

from ottla.config.inert import NO_PLUGINS, NO_TIERS
from ottla.config.notation import (
    LONG_MAX,
    MINUTE,
    SECOND,
    Bool,
    Bytes,
    Double,
    GiB,
    Int,
    IntMs,
    LongBytes,
    Ms,
    Seconds,
    String,
    optional,
    setting,
)

REMOTE_LOG_STORAGE_SYSTEM_ENABLE = setting(
    "remote.log.storage.system.enable",
    Bool,
    default=False,
    inert=NO_TIERS,
    doc="Let topics keep segments in remote storage.",
)

# The two stores: segments, and what is known about them
REMOTE_LOG_STORAGE_MANAGER_CLASS_NAME = setting(
    "remote.log.storage.manager.class.name",
    optional(String),
    default=None,
    may_be_empty=False,
    inert=NO_PLUGINS,
    doc="The class that stores segments.",
)
REMOTE_LOG_STORAGE_MANAGER_CLASS_PATH = setting(
    "remote.log.storage.manager.class.path",
    optional(String),
    default=None,
    inert=NO_PLUGINS,
    doc="Where that class is.",
)
REMOTE_LOG_STORAGE_MANAGER_IMPL_PREFIX = setting(
    "remote.log.storage.manager.impl.prefix",
    String,
    default="rsm.config.",
    may_be_empty=False,
    inert=NO_PLUGINS,
    doc="Settings that begin with this are handed to that class.",
)
REMOTE_LOG_METADATA_MANAGER_CLASS_NAME = setting(
    "remote.log.metadata.manager.class.name",
    String,
    default="org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
    may_be_empty=False,
    inert=NO_PLUGINS,
    doc="The class that remembers which segments are stored.",
)
REMOTE_LOG_METADATA_MANAGER_CLASS_PATH = setting(
    "remote.log.metadata.manager.class.path",
    optional(String),
    default=None,
    inert=NO_PLUGINS,
    doc="Where that class is.",
)
REMOTE_LOG_METADATA_MANAGER_IMPL_PREFIX = setting(
    "remote.log.metadata.manager.impl.prefix",
    String,
    default="rlmm.config.",
    may_be_empty=False,
    inert=NO_PLUGINS,
    doc="Settings that begin with this are handed to that class.",
)
REMOTE_LOG_METADATA_MANAGER_LISTENER_NAME = setting(
    "remote.log.metadata.manager.listener.name",
    optional(String),
    default=None,
    may_be_empty=False,
    inert=NO_PLUGINS,
    doc="The listener that class connects to.",
)
REMOTE_LOG_METADATA_CUSTOM_METADATA_MAX_BYTES = setting(
    "remote.log.metadata.custom.metadata.max.bytes",
    Bytes,
    default=128,
    at_least=0,
    inert=NO_TIERS,
    doc="The most that a store may remember of its own with a segment.",
)

# Work
REMOTE_LOG_MANAGER_TASK_INTERVAL_MS = setting(
    "remote.log.manager.task.interval.ms",
    Ms,
    default=30 * SECOND,
    at_least=1,
    inert=NO_TIERS,
    doc="How often to look for segments to copy or remove.",
)
REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MS = setting(
    "remote.log.manager.task.retry.backoff.ms",
    Ms,
    default=500,
    at_least=1,
    internal=True,
    inert=NO_TIERS,
    doc="How long to wait before failed work is first tried again.",
)
REMOTE_LOG_MANAGER_TASK_RETRY_BACKOFF_MAX_MS = setting(
    "remote.log.manager.task.retry.backoff.max.ms",
    Ms,
    default=30 * SECOND,
    at_least=1,
    internal=True,
    inert=NO_TIERS,
    doc="How far that time grows.",
)
REMOTE_LOG_MANAGER_TASK_RETRY_JITTER = setting(
    "remote.log.manager.task.retry.jitter",
    Double,
    default=0.2,
    at_least=0,
    at_most=0.5,
    internal=True,
    inert=NO_TIERS,
    doc="How much chance there is in that time.",
)
REMOTE_LOG_MANAGER_THREAD_POOL_SIZE = setting(
    "remote.log.manager.thread.pool.size",
    Int,
    default=2,
    at_least=1,
    inert=NO_TIERS,
    doc="The older name of remote.log.manager.follower.thread.pool.size.",
)
REMOTE_LOG_MANAGER_FOLLOWER_THREAD_POOL_SIZE = setting(
    "remote.log.manager.follower.thread.pool.size",
    Int,
    default=2,
    at_least=1,
    live=True,
    inert=NO_TIERS,
    doc="Threads that find out for followers what is stored.",
)
REMOTE_LOG_MANAGER_COPIER_THREAD_POOL_SIZE = setting(
    "remote.log.manager.copier.thread.pool.size",
    Int,
    default=10,
    at_least=1,
    live=True,
    inert=NO_TIERS,
    doc="Threads that copy segments.",
)
REMOTE_LOG_MANAGER_EXPIRATION_THREAD_POOL_SIZE = setting(
    "remote.log.manager.expiration.thread.pool.size",
    Int,
    default=10,
    at_least=1,
    live=True,
    inert=NO_TIERS,
    doc="Threads that remove segments.",
)
REMOTE_LOG_MANAGER_COPY_MAX_BYTES_PER_SECOND = setting(
    "remote.log.manager.copy.max.bytes.per.second",
    LongBytes,
    default=LONG_MAX,
    at_least=1,
    live=True,
    inert=NO_TIERS,
    doc="Bytes per second that copying may take.",
)
REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_NUM = setting(
    "remote.log.manager.copy.quota.window.num",
    Int,
    default=11,
    at_least=1,
    inert=NO_TIERS,
    doc="How many samples the rate of copying is made of.",
)
REMOTE_LOG_MANAGER_COPY_QUOTA_WINDOW_SIZE_SECONDS = setting(
    "remote.log.manager.copy.quota.window.size.seconds",
    Seconds,
    default=1,
    at_least=1,
    inert=NO_TIERS,
    doc="How long a sample of copying is taken.",
)

# Reading
REMOTE_LOG_READER_THREADS = setting(
    "remote.log.reader.threads",
    Int,
    default=10,
    at_least=1,
    live=True,
    inert=NO_TIERS,
    doc="Threads that read from remote storage.",
)
REMOTE_LOG_READER_MAX_PENDING_TASKS = setting(
    "remote.log.reader.max.pending.tasks",
    Int,
    default=100,
    at_least=1,
    inert=NO_TIERS,
    doc="How many reads may wait; more are refused.",
)
REMOTE_LOG_MANAGER_FETCH_MAX_BYTES_PER_SECOND = setting(
    "remote.log.manager.fetch.max.bytes.per.second",
    LongBytes,
    default=LONG_MAX,
    at_least=1,
    live=True,
    inert=NO_TIERS,
    doc="Bytes per second that reading may take.",
)
REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_NUM = setting(
    "remote.log.manager.fetch.quota.window.num",
    Int,
    default=11,
    at_least=1,
    inert=NO_TIERS,
    doc="How many samples the rate of reading is made of.",
)
REMOTE_LOG_MANAGER_FETCH_QUOTA_WINDOW_SIZE_SECONDS = setting(
    "remote.log.manager.fetch.quota.window.size.seconds",
    Seconds,
    default=1,
    at_least=1,
    inert=NO_TIERS,
    doc="How long a sample of reading is taken.",
)
REMOTE_FETCH_MAX_WAIT_MS = setting(
    "remote.fetch.max.wait.ms",
    IntMs,
    default=500,
    at_least=1,
    live=True,
    inert=NO_TIERS,
    doc="How long a fetch may wait for remote storage.",
)
REMOTE_LIST_OFFSETS_REQUEST_TIMEOUT_MS = setting(
    "remote.list.offsets.request.timeout.ms",
    Ms,
    default=30 * SECOND,
    at_least=1,
    live=True,
    inert=NO_TIERS,
    doc="How long a look-up of offsets may wait for remote storage.",
)
REMOTE_LOG_INDEX_FILE_CACHE_TOTAL_SIZE_BYTES = setting(
    "remote.log.index.file.cache.total.size.bytes",
    LongBytes,
    default=1 * GiB,
    at_least=1,
    live=True,
    inert=NO_TIERS,
    doc="Disk space for indexes fetched from remote storage.",
)
REMOTE_LOG_INDEX_FILE_CACHE_TTL_MS = setting(
    "remote.log.index.file.cache.ttl.ms",
    Ms,
    default=15 * MINUTE,
    at_least=-1,
    internal=True,
    inert=NO_TIERS,
    doc="Drop an index that was not used for this long. -1: only for want of space.",
)
