"""The partitions of this broker, kept in line with the metadata.

Rule 1: the metadata decides what exists. A log it does not know is set aside (`-stray`), never removed: a cluster that
        forgot a topic must not cost its records.
Rule 2: a log belongs to one topic id. One left by an earlier topic of the same name is set aside too (KAFKA-12257).
Rule 3: a log that cannot be opened or made leaves its partition offline, and the others alone.
Rule 4: a log that should be here and is not may be in a directory that cannot be used. It is made anew only when all
        directories can: an empty one in its place would hide what it holds (KAFKA-3410).
Rule 5: thousands of partitions that come or go at once do so in slices, between which others have their turn.
Rule 6: where there are too few descriptors for a new log, it is waited for some, and the changes after it wait, too:
        who made the topic is not told that it is there before it is.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ottla.broker.partition import Partition
from ottla.config import Config
from ottla.core.metadata import image as metadata
from ottla.core.metadata.decision import MetadataRecord
from ottla.core.metadata.image import Image
from ottla.observe.trace import trace, warn
from ottla.storage.log_directory import OutOfFiles
from ottla.storage.store import LogStore, NewLog
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
"""Each new one makes a directory and two files, in a thread."""
_REMOVED_AT_ONCE = 64
"""Each is one renaming, in a thread."""
_RECONFIGURED_AT_ONCE = 256
_OUT_OF_FILES_REST_S = 0.5


class _New(NamedTuple):
    topic: metadata.Topic
    number: int
    state: metadata.Partition


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
        new: list[_New] = []
        gone: list[tuple[str, int]] = []
        for record in records:
            match record:
                case PartitionRecord() | PartitionChangeRecord():
                    await self._remove(gone)  # The one that is made may have the name of one that goes.
                    topic = image.topic_by_id(record.topic_id)
                    state = topic.partitions.get(record.partition_id) if topic is not None else None
                    if topic is None or state is None:
                        continue
                    if isinstance(record, PartitionRecord):
                        new.append(_New(topic, record.partition_id, state))
                        if len(new) >= _KEPT_AT_ONCE:
                            await self._make(new)
                    else:
                        await self._make(new)
                        self._keep(topic, record.partition_id, state, is_new=False)
                case TopicRecord():
                    trace("topic.created", topic=record.name, topic_id=uuid_to_text(record.topic_id))
                case RemoveTopicRecord():
                    await self._make(new)
                    keys = self._by_topic.pop(record.topic_id, [])
                    gone += keys
                    trace("topic.removed", topic=keys[0][0] if keys else uuid_to_text(record.topic_id))
                case ConfigRecord(resource_type=metadata.TOPIC):
                    await self._remove(gone)
                    await self._make(new)
                    await self._reconfigure_topic(image, record.resource_name)
        await self._remove(gone)
        await self._make(new)

    async def _make(self, new: list["_New"]) -> None:
        """The logs of new partitions are made in a thread, some at a time. Empties the list."""
        here = [one for one in new if self._node_id in one.state.replicas]
        new.clear()
        lacking = [one for one in here if (one.topic.name, one.number) not in self._store.logs]
        if lacking:
            wanted = [
                NewLog(one.topic.name, one.number, one.topic.topic_id, self._config_of(one.topic.name))
                for one in lacking
            ]
            await self._make_logs(wanted)
        for one in here:
            if (one.topic.name, one.number) not in self._store.offline:
                self._keep(one.topic, one.number, one.state, is_new=True)

    async def _make_logs(self, wanted: list[NewLog]) -> None:
        while wanted:
            try:
                made = await self._store.create_some(wanted)
            except Refused as refusal:
                made = [refusal] * len(wanted)
            lacking: list[NewLog] = []
            for log, failure in zip(wanted, made, strict=True):
                if isinstance(failure, OutOfFiles):
                    lacking.append(log)
                elif isinstance(failure, Refused):
                    self._set_offline((log.topic, log.partition), failure)
            wanted = lacking
            if wanted:
                await asyncio.sleep(_OUT_OF_FILES_REST_S)  # Rule 6.

    async def _reconfigure_topic(self, image: Image, name: str) -> None:
        topic = image.topics.get(name)
        if topic is not None:
            await self._reconfigure(self._by_topic.get(topic.topic_id, []))

    async def reconfigure(self) -> None:
        """Settings of the broker have changed."""
        await self._reconfigure(list(self._by_key))

    async def _reconfigure(self, keys: Sequence[tuple[str, int]]) -> None:
        configs: dict[str, Config] = {}
        for number, key in enumerate(keys, start=1):
            partition = self._by_key.get(key)
            if partition is not None:
                if key[0] not in configs:
                    configs[key[0]] = self._config_of(key[0])
                partition.log.reconfigure(configs[key[0]])
            if number % _RECONFIGURED_AT_ONCE == 0:
                configs.clear()  # They may change meanwhile.
                await asyncio.sleep(0)

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
            self._set_offline(key, refusal)
            return None
        return Partition(log, topic.topic_id, leader_epoch=-1, isr=())

    def _set_offline(self, key: tuple[str, int], refusal: Refused) -> None:
        warn("partition.offline", topic=key[0], partition=key[1], reason=refusal.text)
        self._store.offline.setdefault(key, refusal.text)

    async def _remove(self, keys: list[tuple[str, int]]) -> None:
        """Those of all topics that go together: what is known of others is written down once, in a thread. Empties
        the list."""
        if not keys:
            return
        going = keys[:]
        keys.clear()
        for first in range(0, len(going), _REMOVED_AT_ONCE):
            few = going[first : first + _REMOVED_AT_ONCE]
            for key in few:
                partition = self._by_key.pop(key)
                partition.retired = True
                if key in self._store.offline:
                    warn("partition.not_removed", topic=key[0], partition=key[1], reason=self._store.offline[key])
                partition.wake_all()
            try:
                await self._store.delete_some(key for key in few if key in self._store.logs)
            except Refused as refusal:
                warn("partitions.not_removed", topic=few[0][0], partitions=len(few), reason=refusal.text)
        await self._store.end_delete()

    def _set_aside(self, topic: str, index: int, reason: str) -> None:
        warn("log.set_aside", topic=topic, partition=index, reason=reason)
        self._store.set_aside((topic, index))
