"""The coordinator of groups on this broker: the shards of `__consumer_offsets`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.coordinators.coordinator import Coordinator
from ottla.config import MAX_MESSAGE_BYTES
from ottla.config.groups import (
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_LOAD_BUFFER_SIZE,
    OFFSETS_TOPIC_COMPRESSION_CODEC,
)
from ottla.core.groups.consumer.topics import TopicView
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.shard import GroupShard
from ottla.core.metadata.names import CONSUMER_OFFSETS
from ottla.core.metadata.records import MetadataRecord
from ottla.core.runtime.shard import RecordTypes
from ottla.kernel import Codec
from ottla.wire.records import consumer_groups, groups
from ottla.wire.records.metadata import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from ottla.broker.node import Node

_RECORD_ROOM_BYTES = 1024  # The space in a batch that is kept free for its overhead around the record of a group.


class GroupCoordinator(Coordinator[GroupShard]):
    def __init__(self, node: "Node") -> None:
        config = node.config
        settings = GroupSettings.of(config, config[MAX_MESSAGE_BYTES] - _RECORD_ROOM_BYTES)
        self._topics = TopicView(node.metadata.image, node.metadata.end_offset - 1)

        def new_shard(_index: int, _epoch: int) -> GroupShard:
            return GroupShard(settings, lambda: _uuid_text(node.new_id()), lambda: node.config, self._topics)

        super().__init__(
            node,
            CONSUMER_OFFSETS,
            RecordTypes(groups, consumer_groups),
            new_shard,
            load_bytes=config[OFFSETS_LOAD_BUFFER_SIZE],
            commit_timeout_ms=config[OFFSETS_COMMIT_TIMEOUT_MS],
            codec=Codec(config[OFFSETS_TOPIC_COMPRESSION_CODEC]),
            may_leave_out=True,
        )
        self._topic_names = {topic.topic_id: name for name, topic in node.metadata.image.topics.items()}

    def metadata_changed(self, records: Sequence[MetadataRecord]) -> None:
        """Apply committed metadata records. The partitions of this broker have been updated before."""
        self._topics.changed(records)
        deleted: dict[str, bytes] = {}
        moved = False
        for record in records:
            match record:
                case TopicRecord():
                    self._topic_names[record.topic_id] = record.name
                case RemoveTopicRecord():
                    name = self._topic_names.pop(record.topic_id, None)
                    if name is not None:
                        deleted[name] = record.topic_id
                    moved = moved or name == self.topic
                case PartitionRecord() | PartitionChangeRecord():
                    moved = moved or self._topic_names.get(record.topic_id) == self.topic
        if moved:
            self.align()
        if deleted:
            self.apply_all(lambda shard, _now_ms: shard.topics_deleted(deleted))


def _uuid_text(random: bytes) -> str:
    """A random UUID, version 4, as Java writes it."""
    digits = random.hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{'89ab'[random[8] >> 6]}{digits[17:20]}-{digits[20:]}"
