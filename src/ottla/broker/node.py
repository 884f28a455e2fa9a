"""A node: it creates all parts of the broker, and starts and stops them.

Start: claim the log directories, load the metadata, load the logs and match them to it, listen, and register. Stop: the
same in reverse order, so that the next start has nothing to recover.

Rule: a node that cannot work ends, so that a supervisor starts it again (`failure`). That is the case when no log
      directory is left, or the directory of the metadata is lost. If some of several directories are lost, the node
      goes on with the others.
"""

from asyncio import Event, Semaphore
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from ottla.broker.controller.channel import ControllerChannel, LocalChannel
from ottla.broker.controller.controller import Controller
from ottla.broker.controller.lifecycle import BrokerIdentity, BrokerLifecycle, directory_id
from ottla.broker.controller.producer_ids import ProducerIds
from ottla.broker.controller.publisher import MetadataDelta, MetadataPublisher
from ottla.broker.controller.raft_log import RaftLog
from ottla.broker.coordinators.groups import GroupCoordinator
from ottla.broker.coordinators.peers import ClusterPeers, LocalPeers
from ottla.broker.coordinators.transactions import TransactionCoordinator
from ottla.broker.network.backlog import Backlog, Budget
from ottla.broker.network.buffer_pool import BufferPool
from ottla.broker.network.connection import SHARED_BUFFER_BYTES, Connection
from ottla.broker.network.connections import Connections
from ottla.broker.network.dispatch import ListenerRole
from ottla.broker.network.frame_memory import FrameMemory
from ottla.broker.network.half_frame import POOLED_BYTES
from ottla.broker.network.receive_round import ReceiveRound
from ottla.broker.network.send_round import SendRound
from ottla.broker.network.shortcuts import NO_FAST_PATH, FastPath
from ottla.broker.network.tuning import NO_TUNING, Tuning
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.registry import Partitions
from ottla.broker.partitions.waiters import WaitingRoom
from ottla.broker.tasks import Tasks, every
from ottla.config import (
    BROKER_RACK,
    CONNECTIONS_MAX_IDLE_MS,
    LOG_CLEANER_BACKOFF_MS,
    LOG_CLEANER_ENABLE,
    LOG_DIR,
    LOG_DIRS,
    LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_FLUSH_SCHEDULER_INTERVAL_MS,
    LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_INITIAL_TASK_DELAY_MS,
    LOG_RETENTION_CHECK_INTERVAL_MS,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    METADATA_LOG_DIR,
    NODE_ID,
    NUM_RECOVERY_THREADS_PER_DATA_DIR,
    PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS,
    REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS,
    SOCKET_REQUEST_MAX_BYTES,
    TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS,
    Config,
    InvalidConfig,
)
from ottla.config.listeners import Endpoint, listeners
from ottla.config.network import QUEUED_MAX_REQUEST_BYTES
from ottla.core.fetch_sessions import FetchSessions
from ottla.core.metadata import image as metadata
from ottla.core.metadata.configs import config_of_broker
from ottla.core.metadata.control import Voter
from ottla.core.metadata.image import Image
from ottla.io.ports import Clock, Disk, Listener, Network, Random
from ottla.observe.trace import trace, warn
from ottla.storage.log_directory import LogDirectory, read_meta
from ottla.storage.store import LogStore, random_id
from ottla.storage.upkeep import Upkeep
from ottla.wire.api.broker_registration import Listener as BrokerListener
from ottla.wire.errors import Error, Refused
from ottla.wire.records.metadata import ConfigRecord, PartitionRecord
from ottla.wire.types import NO_UUID
from ottla.wire.uuids import uuid_to_text

_FETCH_SESSION_EVICTION_MS = 120_000
_SILENCE_CHECK_MS = 5_000
_LONG_CHECKS_MAX = 2
"""At most this many batches are checked in threads at a time."""


class Node:
    def __init__(
        self,
        config: Config,
        *,
        disk: Disk,
        clock: Clock,
        random: Random,
        network: Network,
        new_id: Callable[[], bytes] = random_id,
        tuning: Tuning = NO_TUNING,
    ) -> None:
        self.file = config
        """The settings with which the node was started; `config` includes later changes."""
        self.config = config
        self.node_id = config[NODE_ID]
        self.cluster_id = ""
        self.clock = clock
        self.random = random
        self.new_id = new_id
        self._network = network
        self.store = LogStore(disk, clock, random, new_id)
        self.upkeep = Upkeep(self.store)
        self.partitions = Partitions(self.node_id, self.store, self.topic_config)
        self.connections = Connections(
            limit=config[MAX_CONNECTIONS],
            limit_per_address=config[MAX_CONNECTIONS_PER_IP],
            overrides=_limits_by_address(config[MAX_CONNECTIONS_PER_IP_OVERRIDES]),
            idle_ms_max=config[CONNECTIONS_MAX_IDLE_MS],
        )
        self.fetch_sessions = FetchSessions(
            config[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS], _FETCH_SESSION_EVICTION_MS
        )
        self.request_bytes_max = config[SOCKET_REQUEST_MAX_BYTES]
        self.tuning = tuning
        self.fast_path = _fast_path_of(self)
        self.receive_round = ReceiveRound(SHARED_BUFFER_BYTES, clock, self.fast_path.write)
        self.buffer_pool = BufferPool(POOLED_BYTES)
        self.frame_memory = FrameMemory(config[QUEUED_MAX_REQUEST_BYTES])
        self.backlog = Backlog(clock)
        self.long_checks = Semaphore(_LONG_CHECKS_MAX)
        self.send_round = SendRound()
        self.waiting_room = WaitingRoom()
        self.metadata = MetadataPublisher()
        self.raft_log: RaftLog
        self.controller: ControllerChannel
        self.producer_ids: ProducerIds
        self.lifecycle: BrokerLifecycle
        self.groups: GroupCoordinator
        self.transactions = TransactionCoordinator(self)
        self.peers: ClusterPeers = LocalPeers(self)
        self.listeners: dict[str, Listener] = {}
        self._tasks = Tasks()
        self.failure = ""
        """Why the node cannot go on; the caller that started it has to stop it."""
        self.failed = Event()

    # Starting and stopping.

    async def start(self) -> None:
        """Start all parts of the node. Returns when clients can connect."""
        paths = self._log_dirs()
        self.cluster_id = self._known_cluster_id(paths) or uuid_to_text(self.new_id())
        self.store.take(paths, self.cluster_id, self.node_id)
        directory = self._metadata_directory()
        controllers = tuple((one.name, one.host, one.port) for one in listeners(self.file).controllers)
        voter = Voter(self.node_id, directory_id(directory), controllers)
        await self._lead_metadata(directory, voter)
        self.store.on_offline = self._directory_offline
        self._configure()
        await self.store.load(self.topic_config, self.file[NUM_RECOVERY_THREADS_PER_DATA_DIR])
        self.partitions.load(self.metadata.image)
        self.groups = GroupCoordinator(self)
        self.groups.align()
        self.metadata.listeners.append(self._metadata_changed)
        self.transactions.coordinator.align()
        await self._listen()
        await self._register()
        await self.lifecycle.tell_directories()
        # Accept clients only now: with no broker registered, a request to create a topic would be refused.
        for listener in self.listeners.values():
            await listener.start()
        self._start_upkeep()
        trace("node.started", node_id=self.node_id, cluster_id=self.cluster_id, partitions=len(self.partitions))

    async def _lead_metadata(self, directory: LogDirectory, voter: Voter) -> None:
        """Load the metadata log, and become its controller: a single node is a quorum of one voter."""
        self.raft_log = await RaftLog.open(directory, voter, self.file, self.clock, self.random, self.metadata)
        controller = Controller(
            self.raft_log, self.metadata, config=lambda: self.config, random=self.random, new_id=self.new_id
        )
        await controller.take_office()
        self.raft_log.keep_recovery_point()
        self.raft_log.on_failure = self._metadata_failed
        self.controller = LocalChannel(controller, lambda: Budget(self.backlog))
        self.lifecycle = BrokerLifecycle(self.node_id, self.controller, self.metadata, self.store)
        self.producer_ids = ProducerIds(self.controller, self.node_id, lambda: self.lifecycle.epoch)

    async def stop(self) -> None:
        """Close the connections, and sync and close the logs, so that the next start needs no recovery."""
        for listener in self.listeners.values():
            listener.close()
        self.connections.close_all()
        self.groups.close()
        self.transactions.coordinator.close()
        await self._tasks.cancel()
        epoch = await self._resign()
        self.partitions.close()
        await self.raft_log.close()
        await self.store.close(epoch)
        trace("node.stopped", node_id=self.node_id)

    async def _resign(self) -> int:
        """Report to the controller that this broker stops, so that no other node waits for it. Returns the broker epoch
        that ends."""
        broker = self.metadata.image.brokers.get(self.node_id)
        await self.lifecycle.stop()
        return -1 if broker is None else broker.epoch

    def spawn(self, *work: Coroutine[Any, Any, Any]) -> None:
        """Run coroutines in the background; they end with the node."""
        for one in work:
            self._tasks.spawn(one)

    # Failing.

    def _metadata_failed(self) -> None:
        self._fail(f"the metadata cannot be written any more ({self.raft_log.failure})")

    def _directory_offline(self, directory: LogDirectory) -> None:
        if not self._online():
            self._fail(f"no log directory is left; {directory.path} was the last ({directory.failure})")
        elif directory is self._metadata_directory():
            self._fail(f"{directory.path}, which holds the metadata, cannot be used any more ({directory.failure})")
        else:
            self.spawn(self.lifecycle.tell_directories())

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.store.directories if directory.failure is None]

    def _fail(self, why: str) -> None:
        if not self.failure:
            self.failure = why
            self.failed.set()
            warn("node.failed", node_id=self.node_id, reason=why)

    def _known_cluster_id(self, paths: list[str]) -> str | None:
        for path in paths:
            meta = read_meta(self.store.disk, path)
            if meta is not None:
                return meta.cluster_id
        return None

    def _log_dirs(self) -> list[str]:
        return [path.rstrip("/") for path in self.file[LOG_DIRS] or self.file[LOG_DIR]]

    def _metadata_directory(self) -> LogDirectory:
        """The directory that holds the metadata. No other is used instead: in an empty one all topics would be
        unknown."""
        wanted = (self.file[METADATA_LOG_DIR] or self._log_dirs()[0]).rstrip("/")
        for directory in self.store.directories:
            if directory.path == wanted:
                return directory
        raise Refused(
            Error.KAFKA_STORAGE_ERROR,
            f"the metadata is in {wanted} (metadata.log.dir), which must be one of the log.dirs and in working order",
        )

    async def _listen(self) -> None:
        wanted = listeners(self.file)
        for endpoint in wanted.clients:
            await self._listen_at(endpoint, "broker")
        for endpoint in wanted.controllers:
            await self._listen_at(endpoint, "controller")

    async def _listen_at(self, endpoint: Endpoint, role: ListenerRole) -> None:
        name = endpoint.name
        connect = partial(Connection, self, name, role)
        self.listeners[name] = await self._network.listen(endpoint.host, endpoint.port, connect)

    async def _register(self) -> None:
        advertised = [self._reached_at(endpoint) for endpoint in listeners(self.file).advertised]
        rack, incarnation_id = self.file[BROKER_RACK], self.new_id()
        await self.lifecycle.register(BrokerIdentity(self.cluster_id, incarnation_id, advertised, rack))

    def _reached_at(self, endpoint: Endpoint) -> BrokerListener:
        """The address that clients get. If the configured port is 0, it is the port that the system chose."""
        port = endpoint.port or self.listeners[endpoint.name].port
        return BrokerListener(
            name=endpoint.name,
            host=endpoint.host or "localhost",
            port=port,
            security_protocol=endpoint.protocol,
        )

    def _start_upkeep(self) -> None:
        config = self.config
        # One checkpoint writes all three offsets that have changed.
        checkpoint_ms = min(
            config[LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS],
            config[LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS],
            config[REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS],
        )
        upkeep: list[tuple[str, int, Callable[[], Awaitable[object]]]] = [
            ("retention", config[LOG_RETENTION_CHECK_INTERVAL_MS], self.upkeep.retain),
            ("flush", config[LOG_FLUSH_SCHEDULER_INTERVAL_MS], self.upkeep.flush),
            ("checkpoint", checkpoint_ms, self.upkeep.checkpoint),
        ]
        if config[LOG_CLEANER_ENABLE]:
            upkeep.append(("cleaning", config[LOG_CLEANER_BACKOFF_MS], self.upkeep.clean))
        for what, interval_ms, work in upkeep:
            self.spawn(every(interval_ms, what, work, first_after_ms=config[LOG_INITIAL_TASK_DELAY_MS]))
        # The first check runs after a whole interval, as in Kafka: it drops a producer whose records have old
        # timestamps, and batches that this producer sends again would then be appended twice.
        expiry_ms = config[PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS]
        self.spawn(every(expiry_ms, "producer expiry", self.upkeep.expire_producers))
        self.spawn(self.upkeep.sync_closed())
        abort_ms = config[TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS]
        self.spawn(every(abort_ms, "producer ids for transactions", self.transactions.stock_producer_ids))
        self.spawn(every(_SILENCE_CHECK_MS, "silent connections", self._close_silent))

    async def _close_silent(self) -> None:
        self.connections.close_silent(self.clock.monotonic_ms(), others_wait=bool(self.frame_memory.waiting))
        self.connections.close_unread()

    # Metadata.

    async def _metadata_changed(self, delta: MetadataDelta, image: Image) -> None:
        records = delta.records
        await self.partitions.changed(image, records)
        self.groups.metadata_changed(records)
        self.transactions.coordinator.align()
        if new := [(one.topic_id, one.partition_id) for one in records if isinstance(one, PartitionRecord)]:
            self.spawn(self.lifecycle.tell_directories(new))
        if any(isinstance(one, ConfigRecord) and one.resource_type == metadata.BROKER for one in records):
            self._configure()
            await self.partitions.reconfigure()

    def _configure(self) -> None:
        self.config, problems = config_of_broker(self.file, self.metadata.image, self.node_id)
        for problem in problems:
            warn("setting.ignored", problem=problem)

    def topic_config(self, topic: str) -> Config:
        return self.config.for_topic(self.metadata.image.config(metadata.TOPIC, topic))

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.metadata.image.topic_by_id(topic_id)
        return topic.name if topic is not None else None

    def partition(self, topic: str | None, index: int, topic_id: bytes = NO_UUID) -> Partition:
        """A partition led here. A caller that uses topic ids gives the id too, and the name found for it, or None."""
        if topic is None:
            raise Refused(Error.UNKNOWN_TOPIC_ID, f"no topic has the id {uuid_to_text(topic_id)}")
        return self.partitions.get(topic, index)


def _fast_path_of(node: Node) -> FastPath:
    """The fast path of a node. If the package `fastpath` is missing, every request is decoded."""
    try:
        from ottla.broker.fastpath.plug import LaneFastPath
    except ModuleNotFoundError:
        return NO_FAST_PATH
    return LaneFastPath(node)


def _limits_by_address(text: str) -> dict[str, int]:
    """Parse `max.connections.per.ip.overrides`: "127.0.0.1:200,10.0.0.7:10"."""
    limits = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        address, _, limit = entry.rpartition(":")
        if not address or not limit.isdigit():
            raise InvalidConfig([f"max.connections.per.ip.overrides={entry}: must be ADDRESS:NUMBER"])
        limits[address] = int(limit)
    return limits
