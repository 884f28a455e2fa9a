"""The node's roles, and the quorum that keeps the cluster's metadata."""

from ottla.config.inert import NO_OTHER_VOTERS, NO_PEERS, NO_PLUGINS, NO_WATCH
from ottla.config.notation import (
    DAY,
    HOUR,
    LONG_MAX,
    MINUTE,
    SECOND,
    Bool,
    Bytes,
    GiB,
    Int,
    IntMs,
    ListOf,
    LongBytes,
    MiB,
    Ms,
    String,
    optional,
    setting,
)

# The node
PROCESS_ROLES = setting(
    "process.roles",
    ListOf,
    default=("broker", "controller"),
    one_of=("broker", "controller"),
    may_be_empty=False,
    doc="What the node does: broker, controller or both. Kafka demands it; here a node is both where it is not said.",
)
NODE_ID = setting(
    "node.id",
    Int,
    default=1,
    at_least=0,
    doc="The node's number in the cluster. Kafka demands it; here the first node is 1 where it is not said.",
)
BROKER_ID = setting("broker.id", Int, default=-1, doc="The older name of node.id; where both are set, they must agree.")
BROKER_RACK = setting(
    "broker.rack",
    optional(String),
    default=None,
    doc="Where the broker stands: a rack, a zone. Replicas are spread over racks, and consumers may read from their "
    "own.",
)
CONTROLLED_SHUTDOWN_ENABLE = setting(
    "controlled.shutdown.enable", Bool, default=True, inert=NO_PEERS, doc="Hand leadership over before the node stops."
)
SERVER_MAX_STARTUP_TIME_MS = setting(
    "server.max.startup.time.ms",
    Ms,
    default=LONG_MAX,
    at_least=0,
    internal=True,
    inert=NO_WATCH,
    doc="Stop when the node is not up after this long.",
)
CONFIG_PROVIDERS = setting(
    "config.providers",
    ListOf,
    default=(),
    live=True,
    inert=NO_PLUGINS,
    doc="Programs that look values up elsewhere, such as secrets in a vault.",
)

# Brokers and the controller
CONTROLLER_LISTENER_NAMES = setting(
    "controller.listener.names",
    optional(ListOf),
    default=None,
    may_be_empty=False,
    doc="Which listeners the controllers use; the first one is where brokers connect to. Kafka demands it; a node "
    "that is a quorum of its own needs none.",
)
INITIAL_BROKER_REGISTRATION_TIMEOUT_MS = setting(
    "initial.broker.registration.timeout.ms",
    IntMs,
    default=1 * MINUTE,
    inert=NO_PEERS,
    doc="A broker that the controller did not accept within this time stops.",
)
BROKER_HEARTBEAT_INTERVAL_MS = setting(
    "broker.heartbeat.interval.ms",
    IntMs,
    default=2 * SECOND,
    inert=NO_PEERS,
    doc="How often a broker tells the controller that it is alive.",
)
BROKER_SESSION_TIMEOUT_MS = setting(
    "broker.session.timeout.ms",
    IntMs,
    default=9 * SECOND,
    inert=NO_PEERS,
    doc="A broker that was silent for this long loses its partitions to others.",
)
CONTROLLER_SOCKET_TIMEOUT_MS = setting(
    "controller.socket.timeout.ms",
    IntMs,
    default=30 * SECOND,
    inert=NO_PEERS,
    doc="How long a controller waits for a broker's answer.",
)
CONTROLLER_PERFORMANCE_SAMPLE_PERIOD_MS = setting(
    "controller.performance.sample.period.ms",
    Ms,
    default=1 * MINUTE,
    at_least=100,
    internal=True,
    inert=NO_WATCH,
    doc="How often to say how long the controller's work takes.",
)
CONTROLLER_PERFORMANCE_ALWAYS_LOG_THRESHOLD_MS = setting(
    "controller.performance.always.log.threshold.ms",
    Ms,
    default=2 * SECOND,
    at_least=0,
    internal=True,
    inert=NO_WATCH,
    doc="The controller says when one piece of work took longer than this.",
)

# The quorum
CONTROLLER_QUORUM_VOTERS = setting(
    "controller.quorum.voters",
    ListOf,
    default=(),
    doc="The voters, fixed: ID@HOST:PORT, separated by commas. Where not set, the metadata log names them.",
)
CONTROLLER_QUORUM_BOOTSTRAP_SERVERS = setting(
    "controller.quorum.bootstrap.servers",
    ListOf,
    default=(),
    inert=NO_PEERS,
    doc="Where to find the quorum at first: HOST:PORT, separated by commas.",
)
CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS = setting(
    "controller.quorum.election.timeout.ms",
    IntMs,
    default=1 * SECOND,
    at_least=0,
    inert=NO_PEERS,
    doc="A candidate that is not elected within this time tries again.",
)
CONTROLLER_QUORUM_FETCH_TIMEOUT_MS = setting(
    "controller.quorum.fetch.timeout.ms",
    IntMs,
    default=2 * SECOND,
    at_least=0,
    inert=NO_PEERS,
    doc="A voter that could not fetch from the leader for this long stands for election; a leader that a majority did "
    "not fetch from for this long resigns.",
)
CONTROLLER_QUORUM_ELECTION_BACKOFF_MAX_MS = setting(
    "controller.quorum.election.backoff.max.ms",
    IntMs,
    default=1 * SECOND,
    at_least=0,
    inert=NO_PEERS,
    doc="The longest wait before a next election, by chance, so that candidates do not block each other.",
)
CONTROLLER_QUORUM_APPEND_LINGER_MS = setting(
    "controller.quorum.append.linger.ms",
    IntMs,
    default=25,
    at_least=0,
    inert=NO_PEERS,
    doc="How long the leader collects records before it writes them.",
)
CONTROLLER_QUORUM_REQUEST_TIMEOUT_MS = setting(
    "controller.quorum.request.timeout.ms",
    IntMs,
    default=2 * SECOND,
    at_least=0,
    inert=NO_PEERS,
    doc="How long a node waits for the quorum's answer before it asks again.",
)
CONTROLLER_QUORUM_RETRY_BACKOFF_MS = setting(
    "controller.quorum.retry.backoff.ms",
    IntMs,
    default=20,
    at_least=0,
    inert=NO_PEERS,
    doc="How long to wait before a failed request to the quorum is sent again.",
)
CONTROLLER_QUORUM_AUTO_JOIN_ENABLE = setting(
    "controller.quorum.auto.join.enable",
    Bool,
    default=False,
    inert=NO_PEERS,
    doc="A new controller makes itself a voter.",
)
CONTROLLER_QUORUM_FETCH_SNAPSHOT_MAX_BYTES = setting(
    "controller.quorum.fetch.snapshot.max.bytes",
    Bytes,
    default=1 * MiB,
    at_least=1,
    inert=NO_PEERS,
    doc="The most that is asked for in one request for a snapshot.",
)
CONTROLLER_QUORUM_FETCH_MAX_BYTES = setting(
    "controller.quorum.fetch.max.bytes",
    Bytes,
    default=1 * MiB,
    at_least=1,
    inert=NO_PEERS,
    doc="The most that is asked for in one fetch of the metadata log. The first batch comes even if it is larger.",
)

# The metadata log
METADATA_LOG_DIR = setting(
    "metadata.log.dir",
    optional(String),
    default=None,
    doc="Where the metadata log lies; where not set, in the first of log.dirs.",
)
METADATA_LOG_SEGMENT_BYTES = setting(
    "metadata.log.segment.bytes",
    Bytes,
    default=1 * GiB,
    at_least=8 * MiB,
    doc="Roll the metadata log when it would exceed this size.",
)
METADATA_LOG_SEGMENT_MS = setting(
    "metadata.log.segment.ms", Ms, default=7 * DAY, doc="Roll the metadata log this long after its first record."
)
METADATA_MAX_RETENTION_BYTES = setting(
    "metadata.max.retention.bytes",
    LongBytes,
    default=100 * MiB,
    doc="How large the metadata log and its snapshots may become together. What no snapshot holds stays.",
)
METADATA_MAX_RETENTION_MS = setting(
    "metadata.max.retention.ms",
    Ms,
    default=7 * DAY,
    doc="How long parts of the metadata log and snapshots stay. What no snapshot holds stays.",
)
METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS = setting(
    "metadata.log.max.record.bytes.between.snapshots",
    LongBytes,
    default=20 * MiB,
    at_least=1,
    doc="Write a snapshot after this many new bytes: the more, the longer a start takes and the less is written.",
)
METADATA_LOG_MAX_SNAPSHOT_INTERVAL_MS = setting(
    "metadata.log.max.snapshot.interval.ms",
    Ms,
    default=1 * HOUR,
    at_least=0,
    doc="Write a snapshot at least this often while there is something new. 0: only by size.",
)
METADATA_MAX_IDLE_INTERVAL_MS = setting(
    "metadata.max.idle.interval.ms",
    IntMs,
    default=500,
    at_least=0,
    inert=NO_OTHER_VOTERS,
    doc="How often the controller writes a record that does nothing, which shows that it is alive. 0: never.",
)
INTERNAL_METADATA_LOG_SEGMENT_BYTES = setting(
    "internal.metadata.log.segment.bytes",
    optional(Bytes),
    default=None,
    internal=True,
    doc="Counts instead of metadata.log.segment.bytes, without its lower bound.",
)
INTERNAL_METADATA_MAX_BATCH_SIZE_IN_BYTES = setting(
    "internal.metadata.max.batch.size.in.bytes",
    Bytes,
    default=8 * MiB,
    internal=True,
    inert=NO_OTHER_VOTERS,
    doc="The largest batch of metadata records.",
)
INTERNAL_METADATA_DELETE_DELAY_MILLIS = setting(
    "internal.metadata.delete.delay.millis",
    Ms,
    default=1 * MINUTE,
    internal=True,
    inert=NO_OTHER_VOTERS,
    doc="A removed file of the metadata log leaves the disk this much later.",
)
