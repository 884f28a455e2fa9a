"""Listeners, connections and requests: addresses and limits of the broker."""

from ottla.config.inert import NO_PEERS, NO_PURGE, NO_QUOTAS, NO_SECURITY, NO_UNSTABLE, ONE_LOOP
from ottla.config.notation import (
    INT_MAX,
    MINUTE,
    SECOND,
    Bool,
    Bytes,
    Int,
    IntMs,
    KiB,
    ListOf,
    LongBytes,
    MiB,
    Ms,
    String,
    optional,
    setting,
)

# Listeners
LISTENERS = setting(
    "listeners",
    ListOf,
    default=("PLAINTEXT://:9092",),
    may_be_empty=False,
    per_broker=True,
    doc="The addresses the node listens on: NAME://HOST:PORT, separated by commas. An empty host means all interfaces.",
)
ADVERTISED_LISTENERS = setting(
    "advertised.listeners",
    optional(ListOf),
    default=None,
    may_be_empty=False,
    doc="The addresses clients are told to connect to, by the same names. Needed where clients reach the node by "
    "another name than it listens on; else listeners counts.",
)
LISTENER_SECURITY_PROTOCOL_MAP = setting(
    "listener.security.protocol.map",
    String,
    default="SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    per_broker=True,
    doc="Which protocol (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL) the listener of each name speaks: NAME:PROTOCOL, "
    "separated by commas.",
)
EARLY_START_LISTENERS = setting(
    "early.start.listeners",
    optional(ListOf),
    default=None,
    inert=NO_SECURITY,
    doc="Listeners that open before the authorizer is ready; where not set, the controller's.",
)

# Sockets
SOCKET_SEND_BUFFER_BYTES = setting(
    "socket.send.buffer.bytes",
    Bytes,
    default=100 * KiB,
    doc="The size of the socket's send buffer. -1, or not set: the operating system's choice.",
)
SOCKET_RECEIVE_BUFFER_BYTES = setting(
    "socket.receive.buffer.bytes",
    Bytes,
    default=100 * KiB,
    doc="The size of the socket's receive buffer. -1, or not set: the operating system's choice.",
)
SOCKET_LISTEN_BACKLOG_SIZE = setting(
    "socket.listen.backlog.size", Int, default=50, at_least=1, doc="How many connections may wait to be accepted."
)
SOCKET_REQUEST_MAX_BYTES = setting(
    "socket.request.max.bytes",
    Bytes,
    default=100 * MiB,
    at_least=1,
    doc="The largest request that is read; a longer one closes its connection before memory is spent on it.",
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MS = setting(
    "socket.connection.setup.timeout.ms",
    Ms,
    default=10 * SECOND,
    inert=NO_PEERS,
    doc="How long connecting to another node may take at first.",
)
SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS = setting(
    "socket.connection.setup.timeout.max.ms",
    Ms,
    default=30 * SECOND,
    inert=NO_PEERS,
    doc="How far that time grows while the other node cannot be reached.",
)

# Connections
MAX_CONNECTIONS = setting(
    "max.connections",
    Int,
    default=INT_MAX,
    at_least=0,
    live=True,
    doc="How many connections there may be at a time. A listener may have its own limit: "
    "listener.name.NAME.max.connections.",
)
MAX_CONNECTIONS_PER_IP = setting(
    "max.connections.per.ip",
    Int,
    default=INT_MAX,
    at_least=0,
    live=True,
    doc="How many connections one address may have. 0 only together with max.connections.per.ip.overrides.",
)
MAX_CONNECTIONS_PER_IP_OVERRIDES = setting(
    "max.connections.per.ip.overrides",
    String,
    default="",
    live=True,
    doc="Other limits for some addresses: HOST:LIMIT, separated by commas.",
)
MAX_CONNECTION_CREATION_RATE = setting(
    "max.connection.creation.rate",
    Int,
    default=INT_MAX,
    at_least=0,
    live=True,
    inert=NO_QUOTAS,
    doc="How many connections are accepted per second; more have to wait.",
)
CONNECTIONS_MAX_IDLE_MS = setting(
    "connections.max.idle.ms",
    Ms,
    default=10 * MINUTE,
    doc="Close a connection on which nothing happened for this long. Negative: never.",
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = setting(
    "connection.failed.authentication.delay.ms",
    IntMs,
    default=100,
    at_least=0,
    inert=NO_SECURITY,
    doc="A failed login is answered this much later, which slows down guessing.",
)

# Requests
NUM_NETWORK_THREADS = setting(
    "num.network.threads",
    Int,
    default=3,
    at_least=1,
    live=True,
    inert=ONE_LOOP,
    doc="Threads that read requests and write answers.",
)
NUM_IO_THREADS = setting(
    "num.io.threads", Int, default=8, at_least=1, live=True, inert=ONE_LOOP, doc="Threads that work on requests."
)
BACKGROUND_THREADS = setting(
    "background.threads",
    Int,
    default=10,
    at_least=1,
    live=True,
    inert=ONE_LOOP,
    doc="Threads for work that no request waits for.",
)
QUEUED_MAX_REQUESTS = setting(
    "queued.max.requests",
    Int,
    default=500,
    at_least=1,
    inert=ONE_LOOP,
    doc="How many requests may wait for a thread before reading stops.",
)
QUEUED_MAX_REQUEST_BYTES = setting(
    "queued.max.request.bytes",
    LongBytes,
    default=-1,
    doc="How many bytes of requests may be in the works before reading stops. -1: no limit.",
)
REQUEST_TIMEOUT_MS = setting(
    "request.timeout.ms",
    IntMs,
    default=30 * SECOND,
    doc="How long the node waits for another node's answer before it asks again.",
)
MAX_REQUEST_PARTITION_SIZE_LIMIT = setting(
    "max.request.partition.size.limit",
    Int,
    default=2000,
    at_least=1,
    doc="How many partitions one request may ask about.",
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS = setting(
    "max.incremental.fetch.session.cache.slots",
    Int,
    default=1000,
    at_least=0,
    doc="How many fetch sessions (KIP-227) are remembered; others send all their partitions every time.",
)
FETCH_MAX_BYTES = setting(
    "fetch.max.bytes",
    Bytes,
    default=55 * MiB,
    at_least=1 * KiB,
    doc="The most that one answer to a fetch holds. The first batch is sent even if it is larger, so that reading "
    "goes on.",
)
FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS = setting(
    "fetch.purgatory.purge.interval.requests",
    Int,
    default=1000,
    inert=NO_PURGE,
    doc="How many fetches end before finished ones are cleared away.",
)
PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS = setting(
    "producer.purgatory.purge.interval.requests",
    Int,
    default=1000,
    inert=NO_PURGE,
    doc="How many produce requests end before finished ones are cleared away.",
)
DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS = setting(
    "delete.records.purgatory.purge.interval.requests",
    Int,
    default=1,
    inert=NO_PURGE,
    doc="How many requests to delete records end before finished ones are cleared away.",
)

# Versions
UNSTABLE_API_VERSIONS_ENABLE = setting(
    "unstable.api.versions.enable",
    Bool,
    default=False,
    internal=True,
    inert=NO_UNSTABLE,
    doc="Offer versions of requests that may still change.",
)
UNSTABLE_FEATURE_VERSIONS_ENABLE = setting(
    "unstable.feature.versions.enable",
    Bool,
    default=False,
    internal=True,
    inert=NO_UNSTABLE,
    doc="Offer versions of features that may still change.",
)
