"""Transactions and their coordinator."""

from ottla.config.inert import NO_TWO_PHASE_COMMIT
from ottla.config.notation import DAY, HOUR, MINUTE, SECOND, Bool, Bytes, Int, IntMs, MiB, Short, setting

TRANSACTION_MAX_TIMEOUT_MS = setting(
    "transaction.max.timeout.ms",
    IntMs,
    default=15 * MINUTE,
    at_least=1,
    doc="The longest a transaction may take; a producer that asks for more is refused.",
)
TRANSACTIONAL_ID_EXPIRATION_MS = setting(
    "transactional.id.expiration.ms",
    IntMs,
    default=7 * DAY,
    at_least=1,
    doc="Forget a transactional id that did nothing for this long.",
)
TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS = setting(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    IntMs,
    default=10 * SECOND,
    at_least=1,
    doc="How often to look for transactions that took too long, and abort them.",
)
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS = setting(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    IntMs,
    default=1 * HOUR,
    at_least=1,
    doc="How often to look for transactional ids to forget.",
)
TRANSACTION_TWO_PHASE_COMMIT_ENABLE = setting(
    "transaction.two.phase.commit.enable",
    Bool,
    default=False,
    inert=NO_TWO_PHASE_COMMIT,
    doc="Let transactions wait without limit for a coordinator outside (KIP-939).",
)
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS = setting(
    "add.partitions.to.txn.retry.backoff.ms",
    IntMs,
    default=20,
    at_least=1,
    doc="How long to wait before adding a partition to a transaction is tried again.",
)
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS = setting(
    "add.partitions.to.txn.retry.backoff.max.ms",
    IntMs,
    default=100,
    at_least=0,
    doc="How long adding a partition to a transaction is tried altogether.",
)

# The topic of transactions
TRANSACTION_STATE_LOG_NUM_PARTITIONS = setting(
    "transaction.state.log.num.partitions",
    Int,
    default=50,
    at_least=1,
    doc="Partitions of the topic of transactions. A transactional id belongs to one of them, so never change it.",
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = setting(
    "transaction.state.log.replication.factor",
    Short,
    default=3,
    at_least=1,
    doc="Replicas of the topic of transactions.",
)
TRANSACTION_STATE_LOG_MIN_ISR = setting(
    "transaction.state.log.min.isr",
    Int,
    default=2,
    at_least=1,
    doc="min.insync.replicas of the topic of transactions.",
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES = setting(
    "transaction.state.log.segment.bytes",
    Bytes,
    default=100 * MiB,
    at_least=1,
    doc="Segment size of the topic of transactions: small ones are compacted and loaded sooner. "
    "It is made with this as its segment.bytes, which must be at least 1 MiB.",
)
TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE = setting(
    "transaction.state.log.load.buffer.size",
    Bytes,
    default=5 * MiB,
    at_least=1,
    doc="How much is read at a time when a coordinator takes a partition over.",
)
