"""The partitions of this broker, kept in line with the metadata.

Rule 1: the metadata decides what exists. A log it does not know is set aside (`-stray`), never removed: a cluster that
        forgot a topic must not cost its records.
Rule 2: a log belongs to one topic id. One left by an earlier topic of the same name is set aside too (KAFKA-12257).
Rule 3: a log that cannot be opened or made leaves its partition offline, and the others alone.
Rule 4: a log that should be here and is not may be in a directory that cannot be used. It is made anew only when all
        directories can: an empty one in its place would hide what it holds (KAFKA-3410).
Rule 5: thousands of partitions that come or go at once do so in slices, between which others have their turn.
"""

import asyncio
from collections.abc import Callable, Iterable

from ottla.broker.partition import Partition
from ottla.config import Config
from ottla.core.metadata import image as metadata
from ottla.core.metadata.decision import MetadataRecord
from ottla.core.metadata.image import Image
from ottla.observe.trace import trace, warn
from ottla.storage.store import LogStore
from ottla.wire.errors import Error, Refused
from ottla.wire.records.metadata import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.wire.uuids import uuid_to_text

ConfigOf = Callable[[str], Config]

_KEPT_AT_ONCE = 16
"""Each new one makes a directory and two files."""
_REMOVED_AT_ONCE = 500
"""Each is one renaming, but the checkpoints of all others are written again after every slice."""


class Partitions:
    def __init__(self, node_id: int, store: LogStore, config_of: ConfigOf) -> None:
        self._node_id = node_id
        self._store = store
        self._config_of = config_of
        self._by_key: dict[tuple[str, int], Partition] = {}
        self._by_topic: dict[bytes, list[tuple[str, int]]] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition as it is, also one whose disk has failed."""
        return self._by_key.get((topic, index))

    def get(self, topic: str, index: int) -> Partition:
        found = self._by_key.get((topic, index))
        if found is not None and found.log.directory.failure is None:
            return found
        if found is not None or (topic, index) in self._store.offline:
            raise Refused(
                Error.KAFKA_STORAGE_ERROR, self._store.offline.get((topic, index), f"{topic}-{index} is offline")
            )
        raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"this broker has no partition {topic}-{index}")

    def load(self, image: Image) -> None:
        """At the start: every partition of the image, and nothing else."""
        for topic, index in sorted(self._store.logs):
            if image.partition(topic, index) is None:
                self._set_aside(topic, index, "the cluster does not know it")
        for topic_info, index, state in image.partitions():
            self._keep(topic_info, index, state, is_new=False)

    async def changed(self, image: Image, records: Iterable[MetadataRecord]) -> None:
        """After records were committed and replayed."""
        for number, record in enumerate(records, start=1):
            match record:
                case PartitionRecord() | PartitionChangeRecord():
                    topic = image.topic_by_id(record.topic_id)
                    state = topic.partitions.get(record.partition_id) if topic is not None else None
                    if topic is not None and state is not None:
                        self._keep(topic, record.partition_id, state, is_new=isinstance(record, PartitionRecord))
                case TopicRecord():
                    trace("topic.created", topic=record.name, topic_id=uuid_to_text(record.topic_id))
                case RemoveTopicRecord():
                    keys = self._by_topic.pop(record.topic_id, [])
                    await self._remove(keys)
                    trace("topic.removed", topic=keys[0][0] if keys else uuid_to_text(record.topic_id))
                case ConfigRecord(resource_type=metadata.TOPIC):
                    self.reconfigure(record.resource_name)
            if number % _KEPT_AT_ONCE == 0:
                await asyncio.sleep(0)

    def reconfigure(self, topic: str | None = None) -> None:
        """Settings have changed, of one topic or (None) of the broker."""
        for (name, _), partition in self._by_key.items():
            if topic is None or name == topic:
                partition.log.reconfigure(self._config_of(name))

    def _keep(self, topic: metadata.Topic, index: int, state: metadata.Partition, *, is_new: bool) -> None:
        if self._node_id not in state.replicas:
            return
        key = (topic.name, index)
        partition = self._by_key.get(key)
        if partition is None:
            partition = self._open(topic, index, is_new=is_new)
            if partition is None:
                return
            self._by_key[key] = partition
            self._by_topic.setdefault(topic.topic_id, []).append(key)
        partition.isr = state.isr
        if state.leader == self._node_id and state.leader_epoch != partition.leader_epoch:
            partition.lead(state.leader_epoch)

    def _open(self, topic: metadata.Topic, index: int, *, is_new: bool) -> Partition | None:
        key = (topic.name, index)
        log = self._store.logs.get(key)
        try:
            if log is not None and log.topic_id not in (None, topic.topic_id):
                self._set_aside(*key, "it belongs to an earlier topic of the same name")
                log = None
            if log is None:
                if not is_new and (unusable := self._store.unusable):
                    raise Refused(
                        Error.KAFKA_STORAGE_ERROR, f"{topic.name}-{index} may be in {', '.join(unusable)}: offline"
                    )
                log = self._store.create(topic.name, index, topic.topic_id, self._config_of(topic.name))
            elif log.topic_id is None:
                log.set_topic_id(topic.topic_id)
        except Refused as refusal:
            warn("partition.offline", topic=topic.name, partition=index, reason=refusal.text)
            self._store.offline.setdefault(key, refusal.text)
            return None
        return Partition(log, topic.topic_id, leader_epoch=-1, isr=())

    async def _remove(self, keys: list[tuple[str, int]]) -> None:
        for first in range(0, len(keys), _REMOVED_AT_ONCE):
            if first:
                await asyncio.sleep(0)
            going = keys[first : first + _REMOVED_AT_ONCE]
            removed = [self._by_key.pop(key) for key in going]
            for key in going:
                if key in self._store.offline:
                    warn("partition.not_removed", topic=key[0], partition=key[1], reason=self._store.offline[key])
            try:
                self._store.delete(*(key for key in going if key in self._store.logs))
            except Refused as refusal:
                warn("partitions.not_removed", topic=going[0][0], partitions=len(going), reason=refusal.text)
            for partition in removed:
                partition.retired = True
                partition.wake_all()

    def _set_aside(self, topic: str, index: int, reason: str) -> None:
        warn("log.set_aside", topic=topic, partition=index, reason=reason)
        self._store.set_aside((topic, index))
