"""A node: everything wired by hand.

Start: take the log directories, load the metadata, bring the logs in line with it, listen, and register. Stop: the
other way round, and the next start has nothing to recover.

Rule: a node that cannot do its work ends, so that a supervisor starts it again (`failure`): when no log directory is
      left, or the one of the metadata is lost. With some of several directories lost it goes on with the others.
"""

from asyncio import Event, Semaphore
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from ottla.broker.backlog import Backlog
from ottla.broker.connection import SHARED_BUFFER_BYTES, Connection
from ottla.broker.connections import Connections
from ottla.broker.frame_memory import FrameMemory
from ottla.broker.groups import GroupCoordinator
from ottla.broker.half_frame import ROOM_BYTES
from ottla.broker.intake import Intake
from ottla.broker.outbox import Outbox
from ottla.broker.paced_reads import Lookout
from ottla.broker.partition import Partition
from ottla.broker.partitions import Partitions
from ottla.broker.quorum import MetadataQuorum
from ottla.broker.rooms import Rooms
from ottla.broker.tasks import Tasks, every
from ottla.broker.transactions import Transactions
from ottla.broker.vigil import Vigil
from ottla.broker.waiters import WaitingRoom
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
from ottla.core.metadata.brokers import (
    Registration,
    assign_directories,
    directories_online,
    fence,
    register,
    unfence,
)
from ottla.core.metadata.configs import config_of_broker
from ottla.core.metadata.control import Voter
from ottla.core.metadata.decision import MetadataRecord
from ottla.core.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, directory_of
from ottla.io.ports import Clock, Disk, Listener, Network, Random
from ottla.observe.trace import trace, warn
from ottla.storage.log_directory import LogDirectory, read_meta
from ottla.storage.store import LogStore, random_id
from ottla.storage.upkeep import Upkeep
from ottla.wire.errors import Error, Refused
from ottla.wire.records.metadata import ConfigRecord, PartitionRecord
from ottla.wire.types import NO_UUID
from ottla.wire.uuids import uuid_to_text

_FETCH_SESSION_EVICTION_MS = 120_000
_SILENCE_CHECK_MS = 5_000
_PLACED_AT_ONCE = 200
_LONG_CHECKS_MAX = 2
"""Batches that are checked in threads at a time."""


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
        processors: int = 1,
    ) -> None:
        self.file = config
        """As the node was started; `config` has what was changed since."""
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
        self.intake = Intake(SHARED_BUFFER_BYTES, clock)
        self.rooms = Rooms(ROOM_BYTES)
        self.frame_memory = FrameMemory(config[QUEUED_MAX_REQUEST_BYTES])
        self.backlog = Backlog(clock)
        self.long_checks = Semaphore(_LONG_CHECKS_MAX)
        self.outbox = Outbox()
        self.vigil = Vigil(processors=processors)
        self.lookout = Lookout(clock)
        self.waiting_room = WaitingRoom()
        self.metadata: MetadataQuorum
        self.groups: GroupCoordinator
        self.transactions = Transactions(self)
        self.listeners: dict[str, Listener] = {}
        self._tasks = Tasks()
        self.failure = ""
        """Why the node cannot go on; whoever runs it has to stop it."""
        self.failed = Event()

    # Life.

    async def start(self) -> None:
        """Returns when clients can connect."""
        paths = self._log_dirs()
        self.cluster_id = self._known_cluster_id(paths) or uuid_to_text(self.new_id())
        self.store.take(paths, self.cluster_id, self.node_id)
        directory = self._metadata_directory()
        controllers = tuple((one.name, one.host, one.port) for one in listeners(self.file).controllers)
        voter = Voter(self.node_id, _directory_id(directory), controllers)
        self.metadata = await MetadataQuorum.open(directory, voter, self.file, self.clock, self.random)
        self.metadata.on_failure = self._metadata_failed
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
        await self._tell_directories()
        # Not before: who asked a broker that is not registered for a topic would be told that nobody can hold it.
        for listener in self.listeners.values():
            await listener.start()
        self._start_upkeep()
        trace("node.started", node_id=self.node_id, cluster_id=self.cluster_id, partitions=len(self.partitions))

    async def stop(self) -> None:
        """Close the connections, sync everything, and leave it so that the next start needs no recovery."""
        for listener in self.listeners.values():
            listener.close()
        self.connections.close_all()
        self.groups.close()
        self.transactions.coordinator.close()
        await self._tasks.cancel()
        epoch = await self._resign()
        await self.metadata.close()
        await self.store.close(epoch)
        trace("node.stopped", node_id=self.node_id)

    async def _resign(self) -> int:
        """Tell the cluster that this broker goes, so that nobody waits for it; the epoch that ends."""
        broker = self.metadata.image.brokers.get(self.node_id)
        try:
            await self.metadata.propose(lambda image: fence(image, self.node_id))
        except Refused as refusal:
            warn("node.not_fenced", node_id=self.node_id, reason=refusal.text)
        return -1 if broker is None else broker.epoch

    def spawn(self, *work: Coroutine[Any, Any, Any]) -> None:
        """Let something run beside the requests; it ends with the node."""
        for one in work:
            self._tasks.spawn(one)

    # Failing.

    def _metadata_failed(self) -> None:
        self._fail(f"the metadata cannot be written any more ({self.metadata.failure})")

    def _directory_offline(self, directory: LogDirectory) -> None:
        if not self._online():
            self._fail(f"no log directory is left; {directory.path} was the last ({directory.failure})")
        elif directory is self._metadata_directory():
            self._fail(f"{directory.path}, which holds the metadata, cannot be used any more ({directory.failure})")
        else:
            self.spawn(self._tell_directories())

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
        """The one that holds the metadata, and no other: an empty one in its place would make all topics unknown."""
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
        for endpoint in (*wanted.clients, *wanted.controllers):
            name = endpoint.name
            self.listeners[name] = await self._network.listen(
                endpoint.host,
                endpoint.port,
                lambda name=name: Connection(self, name),  # type: ignore[misc]
            )

    async def _register(self) -> None:
        advertised = tuple(self._reached_at(endpoint) for endpoint in listeners(self.file).advertised)
        registration = Registration(
            broker_id=self.node_id,
            incarnation_id=self.new_id(),
            endpoints=advertised,
            rack=self.file[BROKER_RACK],
            directories=tuple(_directory_id(directory) for directory in self.store.directories),
        )
        quorum = self.metadata
        await quorum.propose(lambda image: register(image, registration, quorum.end_offset))
        await quorum.propose(lambda image: unfence(image, self.node_id))

    def _reached_at(self, endpoint: Endpoint) -> metadata.Endpoint:
        """What clients are told; a port that was left open is the one the system chose."""
        port = endpoint.port or self.listeners[endpoint.name].port
        return metadata.Endpoint(endpoint.name, endpoint.host or "localhost", port, endpoint.protocol)

    def _start_upkeep(self) -> None:
        config = self.config
        # One checkpoint writes what has changed of all three.
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
        # Not before a whole interval, as in Kafka: a producer whose records have old timestamps is forgotten by the
        # first look, and what it sends again would be appended again.
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

    async def _metadata_changed(self, records: list[MetadataRecord]) -> None:
        await self.partitions.changed(self.metadata.image, records)
        self.groups.metadata_changed(records)
        self.transactions.coordinator.align()
        if new := [(one.topic_id, one.partition_id) for one in records if isinstance(one, PartitionRecord)]:
            self.spawn(self._tell_directories(new))
        if any(isinstance(one, ConfigRecord) and one.resource_type == metadata.BROKER for one in records):
            self._configure()
            await self.partitions.reconfigure()

    async def _tell_directories(self, partitions: Iterable[tuple[bytes, int]] | None = None) -> None:
        """Tell the cluster which directories can be used, and in which of them each log is: of these partitions, or of
        all."""
        image, online = self.metadata.image, tuple(map(_directory_id, self._online()))
        if partitions is None:
            partitions = [(topic.topic_id, index) for topic, index, _ in image.partitions()]
        placed = [
            (topic_id, index, directory)
            for topic_id, index in partitions
            if (topic := image.topic_by_id(topic_id)) is not None
            and (state := topic.partitions.get(index)) is not None
            and (directory := self._place_of(topic.name, index, state, online)) is not None
        ]
        try:
            await self.metadata.propose(lambda image: directories_online(image, self.node_id, online))
            for first in range(0, len(placed), _PLACED_AT_ONCE):
                few = placed[first : first + _PLACED_AT_ONCE]
                await self.metadata.propose(partial(assign_directories, broker_id=self.node_id, placed=few))
        except Refused as refusal:
            warn("directories.not_told", logs=len(placed), reason=refusal.text)

    def _place_of(self, topic: str, index: int, state: metadata.Partition, online: tuple[bytes, ...]) -> bytes | None:
        """The directory of a log where the cluster knows another one. A log that cannot be used is lost, unless the
        whole directory is, which the cluster knows."""
        told = directory_of(state, self.node_id)
        if (log := self.store.logs.get((topic, index))) is not None:
            place = _directory_id(log.directory)
        elif (topic, index) in self.store.offline and told in (*online, NO_UUID, UNASSIGNED_DIRECTORY):
            place = LOST_DIRECTORY
        else:
            return None
        return place if place != told else None

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
        """A partition led here. Who goes by ids gives the id too, and the name that was found for it."""
        if topic is None:
            raise Refused(Error.UNKNOWN_TOPIC_ID, f"no topic has the id {uuid_to_text(topic_id)}")
        return self.partitions.get(topic, index)


def _directory_id(directory: LogDirectory) -> bytes:
    meta = directory.meta
    assert meta is not None, "a directory that is in use was claimed"
    return meta.directory_id or NO_UUID


def _limits_by_address(text: str) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: "127.0.0.1:200,10.0.0.7:10"."""
    limits = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        address, _, limit = entry.rpartition(":")
        if not address or not limit.isdigit():
            raise InvalidConfig([f"max.connections.per.ip.overrides={entry}: must be ADDRESS:NUMBER"])
        limits[address] = int(limit)
    return limits
