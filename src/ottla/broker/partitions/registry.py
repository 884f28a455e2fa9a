"""The partitions of this broker, kept consistent with the metadata.

Rule 1: the metadata decides which partitions exist. A log of no known partition is set aside (`-stray`), never
        removed: if the metadata lost a topic, its records must survive.
Rule 2: a log belongs to one topic id. A log of an earlier topic with the same name is set aside too (KAFKA-12257).
Rule 3: if a log cannot be opened or created, its partition is offline. Other partitions are not affected.
Rule 4: a log that is missing on this broker may be in a directory that cannot be used. It is created again only if all
        directories can be used: an empty log in its place would hide the records of the other one (KAFKA-3410).
Rule 5: thousands of partitions may be added or removed at once. This is done in slices, and other tasks run in between.
Rule 6: if too few file descriptors are left for a new log, its creation waits for some, and the changes after it wait
        too. So the client that created the topic gets no response before the topic's logs exist.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ottla.broker.partitions.partition import Partition
from ottla.config import Config
from ottla.core.metadata import image as metadata
from ottla.core.metadata.image import Image
from ottla.core.metadata.records import MetadataRecord
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
"""Each new partition creates a directory and two files, in a thread."""
_REMOVED_AT_ONCE = 64
"""Each removal is one rename, in a thread."""
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
        """The partition in any state, even if its disk has failed; None if this broker has no such partition."""
        return self._by_key.get((topic, index))

    def get(self, topic: str, index: int) -> Partition:
        """Raises Refused if this broker does not lead the partition, or cannot use its log."""
        found = self._by_key.get((topic, index))
        if (why := self._store.offline.get((topic, index))) is not None:
            raise Refused(Error.KAFKA_STORAGE_ERROR, why)
        if found is not None:
            found.check_leads()
            return found
        raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"this broker has no partition {topic}-{index}")

    def load(self, image: Image) -> None:
        """At startup, open the partitions of the image, and set aside the logs of all other partitions."""
        for topic, index in sorted(self._store.logs):
            if image.partition(topic, index) is None:
                self._set_aside(topic, index, "the cluster does not know it")
        for topic_info, index, state in image.partitions():
            self._keep(topic_info, index, state, is_new=False)

    async def changed(self, image: Image, records: Iterable[MetadataRecord]) -> None:
        """Apply metadata records that were committed and replayed into the image."""
        new: list[_New] = []
        gone: list[tuple[str, int]] = []
        for record in records:
            match record:
                case PartitionRecord() | PartitionChangeRecord():
                    await self._remove(gone)  # A new partition may have the name of a removed one.
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
        """Create the logs of new partitions in a thread, some at a time. Empties the list."""
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
        """Apply changed settings of the broker to all logs."""
        await self._reconfigure(list(self._by_key))

    async def _reconfigure(self, keys: Sequence[tuple[str, int]]) -> None:
        configs: dict[str, Config] = {}
        for number, key in enumerate(keys, start=1):
            partition = self._by_key.get(key)
            if partition is not None:
                if key[0] not in configs:
                    configs[key[0]] = self._config_of(key[0])
                partition.reconfigure(configs[key[0]])
            if number % _RECONFIGURED_AT_ONCE == 0:
                configs.clear()  # The settings may change during the sleep.
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
        partition.set_replicas(state.replicas, state.isr)
        if state.leader != self._node_id:
            partition.follow()
        elif not partition.is_led or state.leader_epoch != partition.leader_epoch:
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
        return Partition(log, topic.topic_id)

    def _set_offline(self, key: tuple[str, int], refusal: Refused) -> None:
        warn("partition.offline", topic=key[0], partition=key[1], reason=refusal.text)
        self._store.offline.setdefault(key, refusal.text)

    async def _remove(self, keys: list[tuple[str, int]]) -> None:
        """Remove the partitions of all topics that are deleted together, so that the checkpoints of the remaining ones
        are written once, in a thread. Empties the list."""
        if not keys:
            return
        going = keys[:]
        keys.clear()
        for first in range(0, len(going), _REMOVED_AT_ONCE):
            few = going[first : first + _REMOVED_AT_ONCE]
            for key in few:
                self._by_key.pop(key).remove()
                if key in self._store.offline:
                    warn("partition.not_removed", topic=key[0], partition=key[1], reason=self._store.offline[key])
            try:
                await self._store.delete_some(key for key in few if key in self._store.logs)
            except Refused as refusal:
                warn("partitions.not_removed", topic=few[0][0], partitions=len(few), reason=refusal.text)
        await self._store.end_delete()

    def close(self) -> None:
        """Stop leading all partitions. The node closes the logs next, so nothing may be written to them any more."""
        for partition in self._by_key.values():
            partition.follow()

    def _set_aside(self, topic: str, index: int, reason: str) -> None:
        warn("log.set_aside", topic=topic, partition=index, reason=reason)
        self._store.set_aside((topic, index))
