"""The client's cluster metadata and its refreshes.

Rule 1: a topic is requested when first needed, when an error says that it moved, and when it is five minutes old.
Rule 2: callers that need topics at the same time share a request.
Rule 3: a topic that a broker does not know is requested again until the caller's time-out: a topic that was just
        created takes a moment to be known everywhere.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from ottla.client.brokers import Brokers
from ottla.client.core.cluster import NO_NODE, Cluster, Partition, Topic
from ottla.client.core.errors import NoLeader
from ottla.client.core.names import TopicPartition
from ottla.observe.trace import trace
from ottla.rpc.backoff import Backoff
from ottla.rpc.errors import ClientError, Declined, error_of
from ottla.rpc.ports import Ports
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.errors import Error

FRESH_MS: Final = 300_000
RETRY: Final = Backoff(first_ms=50, max_ms=1_000)


class Metadata:
    """The metadata of a client."""

    def __init__(self, ports: Ports, brokers: Brokers, cluster: Cluster, request_timeout_ms: int) -> None:
        self._ports = ports
        self._brokers = brokers
        self._request_timeout_ms = request_timeout_ms
        self.cluster = cluster
        self._known_at_ms: dict[str, int] = {}
        self._lock = asyncio.Lock()

    def stale(self, topic: str) -> None:
        """Mark a topic as outdated: refresh it before its next use."""
        self._known_at_ms.pop(topic, None)

    def is_fresh(self, topic: str) -> bool:
        known_at_ms = self._known_at_ms.get(topic)
        return known_at_ms is not None and self._ports.clock.monotonic_ms() - known_at_ms < FRESH_MS

    async def all_topics(self) -> dict[str, Topic]:
        """Request all topics of the cluster now."""
        await self._ask(None, create=False)
        return self.cluster.topics

    async def topic(self, name: str, *, timeout_ms: int, create: bool = False) -> Topic:
        """A topic that exists. `create`: allow the broker to create it automatically. Raises ClientError."""
        deadline_ms = self._ports.clock.monotonic_ms() + timeout_ms
        failures = 0
        while True:
            failure: ClientError
            try:
                await self.refresh([name], create=create)
                topic = self.cluster.topics.get(name)
                if topic is not None:
                    return topic
                error = self.cluster.errors.get(name, Error.UNKNOWN_TOPIC_OR_PARTITION)
                failure = Declined(error, broker=(await self._brokers.any()).address, subject=f"topic {name}")
            except ClientError as error_met:
                failure = error_met
            failures += 1
            wait_ms = RETRY.wait_ms(failures, self._ports.random)
            if not failure.retriable or self._ports.clock.monotonic_ms() + wait_ms > deadline_ms:
                raise failure
            await asyncio.sleep(wait_ms / 1000)

    async def leader(self, partition: TopicPartition, *, timeout_ms: int) -> Partition:
        """A partition with its leader. Raises `NoLeader` if there is none; the caller waits and asks again."""
        topic = await self.topic(partition.topic, timeout_ms=timeout_ms)
        if not 0 <= partition.partition < len(topic.partitions):
            self.stale(partition.topic)
            raise NoLeader(partition, exists=False)
        found = topic.partitions[partition.partition]
        if found.leader == NO_NODE or found.leader not in self.cluster.brokers:
            self.stale(partition.topic)
            raise NoLeader(partition, exists=True)
        return found

    async def refresh(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Request the given topics that are outdated."""
        names = list(topics)
        async with self._lock:
            wanted = [name for name in names if not self.is_fresh(name)]
            if wanted:
                await self._ask(wanted, create=create)

    async def _ask(self, topics: list[str] | None, *, create: bool) -> None:
        connection = await self._brokers.any()
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
        answer: MetadataResponse = await connection.call(request, timeout_ms=self._request_timeout_ms)
        error = error_of(answer.error_code)
        if error is not Error.NONE:
            raise Declined(error, broker=connection.address)
        before = self.cluster.cluster_id
        self.cluster.update(answer, complete=topics is None)
        if before not in (None, self.cluster.cluster_id):
            trace("client.cluster_changed", broker=str(connection.address), was=before, now=self.cluster.cluster_id)
        now = self._ports.clock.monotonic_ms()
        self._known_at_ms.update({topic.name or "": now for topic in answer.topics if topic.error_code == Error.NONE})
