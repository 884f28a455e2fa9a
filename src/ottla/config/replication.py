"""Replication between brokers, and leader election."""

from ottla.config.inert import NO_REPLICATION, NO_TIERS
from ottla.config.notation import (
    LONG_MAX,
    MINUTE,
    SECOND,
    Bool,
    Bytes,
    Int,
    IntMs,
    KiB,
    LongBytes,
    LongSeconds,
    MiB,
    Ms,
    String,
    optional,
    setting,
)

DEFAULT_REPLICATION_FACTOR = setting(
    "default.replication.factor",
    Int,
    default=-1,
    at_least=1,
    also=(-1,),
    doc="Replicas of a topic made without a number. -1: 3, or as many as there are brokers if there are fewer; "
    "Kafka's default of 1 loses a topic with its disk.",
)
REPLICA_LAG_TIME_MAX_MS = setting(
    "replica.lag.time.max.ms",
    Ms,
    default=30 * SECOND,
    inert=NO_REPLICATION,
    doc="A follower that has not caught up with the leader's end for this long leaves the in-sync set.",
)
NUM_REPLICA_FETCHERS = setting(
    "num.replica.fetchers",
    Int,
    default=1,
    at_least=1,
    live=True,
    inert=NO_REPLICATION,
    doc="Connections to each leader that a follower fetches with.",
)
REPLICA_FETCH_MAX_BYTES = setting(
    "replica.fetch.max.bytes",
    Bytes,
    default=1 * MiB,
    at_least=0,
    inert=NO_REPLICATION,
    doc="How much a follower asks for per partition. The first batch comes even if it is larger.",
)
REPLICA_FETCH_RESPONSE_MAX_BYTES = setting(
    "replica.fetch.response.max.bytes",
    Bytes,
    default=10 * MiB,
    at_least=0,
    inert=NO_REPLICATION,
    doc="How much a follower asks for over all partitions of one fetch. The first batch comes even if it is larger.",
)
REPLICA_FETCH_MIN_BYTES = setting(
    "replica.fetch.min.bytes",
    Bytes,
    default=1,
    inert=NO_REPLICATION,
    doc="A leader waits for this much before it answers a follower, up to replica.fetch.wait.max.ms.",
)
REPLICA_FETCH_BACKOFF_MS = setting(
    "replica.fetch.backoff.ms",
    IntMs,
    default=1 * SECOND,
    at_least=0,
    inert=NO_REPLICATION,
    doc="How long a follower waits after a failed fetch.",
)
REPLICA_SOCKET_TIMEOUT_MS = setting(
    "replica.socket.timeout.ms",
    IntMs,
    default=30 * SECOND,
    inert=NO_REPLICATION,
    doc="How long a follower waits for its leader's answer.",
)
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES = setting(
    "replica.socket.receive.buffer.bytes",
    Bytes,
    default=64 * KiB,
    inert=NO_REPLICATION,
    doc="The size of the receive buffer of the sockets followers fetch with.",
)
REPLICA_FETCH_WAIT_MAX_MS = setting(
    "replica.fetch.wait.max.ms",
    IntMs,
    default=500,
    not_above=(REPLICA_SOCKET_TIMEOUT_MS, REPLICA_LAG_TIME_MAX_MS),
    inert=NO_REPLICATION,
    doc="How long a leader may wait before it answers a follower.",
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS = setting(
    "replica.high.watermark.checkpoint.interval.ms",
    Ms,
    default=5 * SECOND,
    doc="How often to write down the high watermark of each partition.",
)
REPLICA_SELECTOR_CLASS = setting(
    "replica.selector.class",
    optional(String),
    default=None,
    inert=NO_REPLICATION,
    doc="What chooses the replica a consumer reads from: org.apache.kafka.common.replica.RackAwareReplicaSelector for "
    "the nearest. Where not set, the leader.",
)
FOLLOWER_FETCH_LAST_TIERED_OFFSET_ENABLE = setting(
    "follower.fetch.last.tiered.offset.enable",
    Bool,
    default=False,
    live=True,
    inert=NO_TIERS,
    doc="A new follower begins behind what is in remote storage.",
)

# Leaders
AUTO_LEADER_REBALANCE_ENABLE = setting(
    "auto.leader.rebalance.enable",
    Bool,
    default=True,
    inert=NO_REPLICATION,
    doc="Give leadership back to the first replica of each partition once that is in sync.",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = setting(
    "leader.imbalance.check.interval.seconds",
    LongSeconds,
    default=300,
    at_least=1,
    inert=NO_REPLICATION,
    doc="How often to look for partitions that others than their first replicas lead.",
)
UNCLEAN_LEADER_ELECTION_INTERVAL_MS = setting(
    "unclean.leader.election.interval.ms",
    Ms,
    default=5 * MINUTE,
    at_least=1,
    internal=True,
    inert=NO_REPLICATION,
    doc="How often to look for partitions that need an unclean election.",
)

# Between brokers
INTER_BROKER_LISTENER_NAME = setting(
    "inter.broker.listener.name",
    optional(String),
    default=None,
    doc="The listener that other brokers use; where not set, the one named like security.inter.broker.protocol.",
)
SECURITY_INTER_BROKER_PROTOCOL = setting(
    "security.inter.broker.protocol",
    String,
    default="PLAINTEXT",
    one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    doc="The protocol between brokers; set either this or inter.broker.listener.name.",
)
NUM_REPLICA_ALTER_LOG_DIRS_THREADS = setting(
    "num.replica.alter.log.dirs.threads",
    optional(Int),
    default=None,
    inert=NO_REPLICATION,
    doc="How many partitions move between directories at a time; where not set, one per directory.",
)

# Throttles
LEADER_REPLICATION_THROTTLED_RATE = setting(
    "leader.replication.throttled.rate",
    LongBytes,
    default=LONG_MAX,
    at_least=0,
    live=True,
    inert=NO_REPLICATION,
    doc="Bytes per second that this broker sends to throttled followers.",
)
FOLLOWER_REPLICATION_THROTTLED_RATE = setting(
    "follower.replication.throttled.rate",
    LongBytes,
    default=LONG_MAX,
    at_least=0,
    live=True,
    inert=NO_REPLICATION,
    doc="Bytes per second that this broker fetches for throttled replicas.",
)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND = setting(
    "replica.alter.log.dirs.io.max.bytes.per.second",
    LongBytes,
    default=LONG_MAX,
    at_least=0,
    live=True,
    inert=NO_REPLICATION,
    doc="Bytes per second that moves between directories may take.",
)
