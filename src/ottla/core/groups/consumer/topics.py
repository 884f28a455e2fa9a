"""The view that groups have of the cluster's topics.

Rule 1: all groups of a node read the committed image through one view, which is notified of changed topics.
Rule 2: a group stores a hash (the same as Kafka's) of the topics of its last epoch. The hash changes if a topic is
        created, deleted, re-created or gets more partitions, and if a replica moves to another rack. A changed hash
        leads to a new group epoch.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from xxhash import xxh3_64_intdigest

from ottla.core.metadata.image import Image, Topic
from ottla.core.metadata.records import MetadataRecord
from ottla.wire.records.metadata import PartitionChangeRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

NO_TOPICS_HASH: Final = 0
_SUBSCRIPTIONS_REMEMBERED: Final = 1_000
_MAGIC: Final = b"\0"
_INT32: Final = struct.Struct("<i")
_INT64: Final = struct.Struct("<q")
_TOPIC_ID: Final = struct.Struct(">qq")
_TWO_INT64: Final = struct.Struct("<qq")


class TopicView:
    """The image, the version in which topics were last created, and caches of topic ids and hashes."""

    def __init__(self, image: Image, version: int = 0) -> None:
        self.image = image
        self.version = version
        """The offset of the last metadata record."""
        self.version_with_new_topics = version
        self.changes = 0
        """Increases with every change of a topic. An equal count means unchanged topics."""
        self._hashes: dict[str, int] = {}
        self._hashes_of_groups: dict[frozenset[str], int] = {}
        self._ids: dict[frozenset[str], frozenset[bytes]] = {}

    def changed(self, records: Sequence[MetadataRecord]) -> None:
        """Called with the next committed records of the metadata log."""
        self.version += len(records)
        for record in records:
            if isinstance(record, TopicRecord):
                self.version_with_new_topics = self.version
            if isinstance(record, TopicRecord | PartitionRecord | PartitionChangeRecord | RemoveTopicRecord):
                self.changes += 1
                # The name of a removed topic is no longer known, so all hashes are dropped. That is rare and cheap.
                self._hashes.clear()
                self._hashes_of_groups.clear()
                self._ids.clear()

    def by_name(self, name: str) -> Topic | None:
        return self.image.topics.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self.image.topics_by_id.get(topic_id)

    def ids(self, names: frozenset[str]) -> frozenset[bytes]:
        """Ids of the existing topics among `names`. Cached, because the members of a group request the same names."""
        found = self._ids.get(names)
        if found is None:
            topics = self.image.topics
            if len(self._ids) >= _SUBSCRIPTIONS_REMEMBERED:
                self._ids.clear()
            found = self._ids[names] = frozenset(topics[name].topic_id for name in names if name in topics)
        return found

    def hash_of(self, names: Iterable[str]) -> int:
        """The metadata hash of a group subscribed to these topics. Topics that do not exist are ignored.

        Cached, because members that join one after the other need the same hash.
        """
        wanted = frozenset(names)
        found = self._hashes_of_groups.get(wanted)
        if found is None:
            if len(self._hashes_of_groups) >= _SUBSCRIPTIONS_REMEMBERED:
                self._hashes_of_groups.clear()
            hashes = [self._hash(topic) for name in sorted(wanted) if (topic := self.by_name(name)) is not None]
            found = _signed(xxh3_64_intdigest(b"".join(map(_INT64.pack, hashes)))) if hashes else NO_TOPICS_HASH
            self._hashes_of_groups[wanted] = found
        return found

    def _hash(self, topic: Topic) -> int:
        found = self._hashes.get(topic.name)
        if found is None:
            found = _signed(xxh3_64_intdigest(b"".join(self._hashed(topic))))
            self._hashes[topic.name] = found
        return found

    def _hashed(self, topic: Topic) -> Iterator[bytes]:
        yield _MAGIC
        yield _TWO_INT64.pack(*_TOPIC_ID.unpack(topic.topic_id))
        yield from _text(topic.name)
        yield _INT32.pack(len(topic.partitions))
        brokers = self.image.brokers
        for index in range(len(topic.partitions)):
            yield _INT32.pack(index)
            replicas = topic.partitions[index].replicas
            for rack in sorted(rack for one in replicas if one in brokers and (rack := brokers[one].rack) is not None):
                text, length = _text(rack)
                yield from (length, text, length)


def _text(text: str) -> tuple[bytes, bytes]:
    """A text as it enters Kafka's hash: its UTF-16 units, and their number."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units, _INT32.pack(len(units) // 2)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
