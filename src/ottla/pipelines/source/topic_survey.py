"""Asks the cluster which offsets the topics of a source hold now, for code outside an event loop: Spark's.

Rule 1: topics and partitions are looked up each time. For a pattern, which needs the names of all topics of the
        cluster, they are looked up at most once a second.
Rule 2: a topic that is deleted during the request counts as absent.
Rule 3: under read_committed a log ends where the first open transaction begins.
"""

import asyncio
from typing import Final

import re2

from ottla.client.client import Client
from ottla.client.core.errors import NoLeader
from ottla.client.core.names import TopicPartition
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.pipelines.source.ranges import LogBounds, PartitionOffsets
from ottla.pipelines.source.read_options import TopicReadOptions
from ottla.rpc.errors import ClientError, Declined
from ottla.wire.errors import Error

DISCOVERY_MS: Final = 1_000
ATTEMPTS: Final = 3
_GONE: Final = frozenset({Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID})


class TopicSurvey:
    def __init__(self, reading: TopicReadOptions) -> None:
        self._reading = reading
        self._runner = asyncio.Runner()
        self._client = Client(reading.bootstrap, client_id=f"ottla-pipeline-{reading.source or 'topics'}")
        self._discovered_at_ms: int | None = None

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def logs(self) -> dict[TopicPartition, LogBounds]:
        """The bounds of every partition of the source's topics. Raises ClientError."""
        return self._runner.run(self._logs())

    def offsets_at(self, logs: dict[TopicPartition, LogBounds], time_ms: int) -> PartitionOffsets:
        """Each partition's first offset at or after a time, or its end if it has none. Raises ClientError."""
        found = self._runner.run(list_offsets(self._client, dict.fromkeys(logs, time_ms)))
        return {
            partition: logs[partition].end if one.offset < 0 else min(one.offset, logs[partition].end)
            for partition, one in found.items()
        }

    def missing_topics(self, logs: dict[TopicPartition, LogBounds]) -> list[str]:
        """The topics that the source names and that do not exist."""
        there = {partition.topic for partition in logs}
        return [name for name in self._reading.topics if name not in there]

    async def _logs(self) -> dict[TopicPartition, LogBounds]:
        for attempt in range(1, ATTEMPTS + 1):
            await self._client.persist(self._discover)
            try:
                return await self._bounds()
            except ClientError as error:
                if attempt == ATTEMPTS or not _is_gone(error):
                    raise
                self._discovered_at_ms = None
        raise AssertionError("the last attempt returns or raises")

    async def _discover(self) -> None:
        now = self._client.ports.clock.monotonic_ms()
        if self._reading.pattern:
            if self._discovered_at_ms is None or now - self._discovered_at_ms >= DISCOVERY_MS:
                await self._client.metadata.all_topics()
                self._discovered_at_ms = now
            return
        for name in self._reading.topics:
            self._client.metadata.stale(name)
        await self._client.metadata.refresh(self._reading.topics)
        for name in self._reading.topics:
            error = self._client.cluster.errors.get(name)
            if error is not None and error not in _GONE:
                raise Declined(error, subject=f"topic {name}")

    async def _bounds(self) -> dict[TopicPartition, LogBounds]:
        partitions = [
            TopicPartition(topic.name, partition.index)
            for topic in self._client.cluster.topics.values()
            if self._wanted(topic.name, internal=topic.internal)
            for partition in topic.partitions
        ]
        firsts, lasts = await asyncio.gather(
            list_offsets(self._client, dict.fromkeys(partitions, EARLIEST)),
            list_offsets(self._client, dict.fromkeys(partitions, LATEST), committed=self._reading.committed),
        )
        return {
            partition: LogBounds(
                firsts[partition].offset,
                max(firsts[partition].offset, lasts[partition].offset),  # The start may have moved in between.
                self._client.cluster.topic_id(partition.topic),
            )
            for partition in partitions
        }

    def _wanted(self, name: str, *, internal: bool) -> bool:
        if self._reading.pattern:
            return not internal and re2.fullmatch(self._reading.pattern, name) is not None
        return name in self._reading.topics


def records_between(reading: TopicReadOptions, from_ms: int, to_ms: int) -> int:
    """The number of offsets that the topics hold between two times. Raises ClientError."""
    survey = TopicSurvey(reading)
    try:
        logs = survey.logs()
        starts, ends = (survey.offsets_at(logs, time_ms) for time_ms in (from_ms, to_ms))
        return sum(max(0, ends[partition] - starts[partition]) for partition in logs)
    finally:
        survey.close()


def _is_gone(error: ClientError) -> bool:
    return isinstance(error, NoLeader) or (isinstance(error, Declined) and error.error in _GONE)
