"""A node: everything wired by hand.

Start: take the log directories, load the metadata, bring the logs in line with it, then listen. Stop: the other way
round, and the next start has nothing to recover.
"""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.broker.connection import SHARED_BUFFER_BYTES, Connection
from ottla.broker.connections import Connections
from ottla.broker.partition import Partition
from ottla.broker.quorum import MetadataQuorum
from ottla.broker.tasks import every
from ottla.config import (
    CONNECTIONS_MAX_IDLE_MS,
    LOG_CLEANER_BACKOFF_MS,
    LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS,
    LOG_FLUSH_SCHEDULER_INTERVAL_MS,
    LOG_RETENTION_CHECK_INTERVAL_MS,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS,
    SOCKET_REQUEST_MAX_BYTES,
    Config,
)
from ottla.core.fetch_sessions import FetchSessions
from ottla.io.ports import Clock, Disk, Listener, Network, Random
from ottla.observe.trace import trace
from ottla.storage.store import LogStore
from ottla.storage.upkeep import Upkeep
from ottla.wire.errors import Error, Refused
from ottla.wire.types import NO_UUID

_FETCH_SESSION_EVICTION_MS = 120_000
_SILENCE_CHECK_MS = 5_000


class Node:
    def __init__(
        self,
        config: Config,
        *,
        node_id: int,
        cluster_id: str,
        disk: Disk,
        clock: Clock,
        random: Random,
        network: Network,
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self.config = config
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.clock = clock
        self.random = random
        self.new_id = new_id
        self._network = network
        self.store = LogStore(disk, clock, random, new_id)
        self.upkeep = Upkeep(self.store)
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.connections = Connections(
            limit=config[MAX_CONNECTIONS],
            limit_per_address=config[MAX_CONNECTIONS_PER_IP],
            idle_ms_max=config[CONNECTIONS_MAX_IDLE_MS],
        )
        self.fetch_sessions = FetchSessions(
            config[MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS], _FETCH_SESSION_EVICTION_MS
        )
        self.request_bytes_max = config[SOCKET_REQUEST_MAX_BYTES]
        self.receive_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.metadata: MetadataQuorum
        self.listeners: list[Listener] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    # Life.

    async def stop(self) -> None:
        """Close the connections, sync everything, and leave it so that the next start needs no recovery."""
        for listener in self.listeners:
            listener.close()
        self.connections.close_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.store.close()
        trace("node.stopped", node_id=self.node_id)

    def spawn(self, *work: Coroutine[Any, Any, Any]) -> None:
        """Let something run beside the requests; it ends with the node."""
        for one in work:
            task = asyncio.get_running_loop().create_task(one)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _start_upkeep(self) -> None:
        config = self.config
        self.spawn(
            every(config[LOG_RETENTION_CHECK_INTERVAL_MS], "retention", self.upkeep.retain),
            every(config[LOG_CLEANER_BACKOFF_MS], "cleaning", self.upkeep.clean),
            every(min(config[LOG_FLUSH_SCHEDULER_INTERVAL_MS], 2**31), "flush", self.upkeep.flush),
            every(config[LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS], "checkpoint", self._checkpoint),
            every(_SILENCE_CHECK_MS, "silent connections", self._close_silent),
        )

    async def _checkpoint(self) -> None:
        self.store.checkpoint()

    async def _close_silent(self) -> None:
        self.connections.close_silent(self.clock.monotonic_ms())

    # Looking up.

    def topic_name(self, topic_id: bytes) -> str | None:
        topic = self.metadata.image.topic_by_id(topic_id)
        return topic.name if topic is not None else None

    def partition(self, topic: str | None, index: int, topic_id: bytes = NO_UUID) -> Partition:
        """A partition led here. A client that goes by ids gives both, the name looked up from the id."""
        if topic is None:
            raise Refused(Error.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
        found = self.partitions.get((topic, index))
        if found is None:
            reason = self.store.offline.get((topic, index))
            if reason is not None:
                raise Refused(Error.KAFKA_STORAGE_ERROR, reason)
            raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"this broker has no partition {topic}-{index}")
        return found


def connection_factory(node: Node, listener: str) -> Callable[[], Connection]:
    return lambda: Connection(node, listener)
