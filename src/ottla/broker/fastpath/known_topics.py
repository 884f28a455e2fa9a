"""The topics that Produce requests have named, by the bytes of their name or id in a request.

Rule 1: a topic becomes known when a request for it was decoded, if its batches may be appended in runs. It is forgotten
        when this broker no longer leads one of its partitions, or one of them no longer takes runs.
Rule 2: a topic is known by its name and by its id, with the same places: clients of different versions share its runs.
        Names and ids have separate tables, because a name may have as many bytes as an id.
Rule 3: a partition has a place only while it has an open run (`appends`).
"""

from typing import TYPE_CHECKING

from ottla.broker.handlers.transactional_produce import TOPIC_IDS_SINCE
from ottla.core.metadata.names import is_internal
from ottla.kernel import ProduceTopic
from ottla.wire.api.produce import ProduceRequest
from ottla.wire.errors import Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.broker.partitions.partition import Partition
    from ottla.kernel import ProducePlace, ProduceRules

_SWEPT_FROM = 64


class KnownTopic:
    def __init__(self, name: str, topic_id: bytes, rules: "ProduceRules") -> None:
        self.name, self.topic_id = name, topic_id
        self.places: dict[int, ProducePlace] = {}
        self.for_kernel = ProduceTopic(rules, self.places, self)
        self.rules = rules
        """The rules that its batches are checked by."""
        self.partitions: dict[int, Partition] = {}

    @property
    def is_gone(self) -> bool:
        return any(not partition.is_led for partition in self.partitions.values())


class KnownTopics:
    """The known topics of a node."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.by_name: dict[bytes, ProduceTopic] = {}
        self.by_id: dict[bytes, ProduceTopic] = {}
        self._sweep_at = _SWEPT_FROM

    def learn(self, request: ProduceRequest, version: int) -> None:
        """Add the topics of a request that was decoded and handled."""
        for topic in request.topic_data:
            if version >= TOPIC_IDS_SINCE:
                is_known, name = topic.topic_id in self.by_id, self._node.topic_name(topic.topic_id)
            else:
                is_known, name = topic.name.encode() in self.by_name, topic.name
            if not is_known and name is not None and not is_internal(name) and topic.partition_data:
                self._add(name, topic.partition_data[0].index, topic.topic_id)

    def _add(self, name: str, index: int, topic_id: bytes) -> None:
        try:
            partition = self._node.partition(name, index, topic_id)
        except Refused:
            return
        if not partition.takes_runs:
            return
        if len(self.by_name) >= self._sweep_at:
            self._sweep()
        topic = KnownTopic(name, partition.topic_id, partition.log.rules)
        self.by_name[name.encode()] = self.by_id[topic.topic_id] = topic.for_kernel

    def partition(self, topic: KnownTopic, index: int) -> "Partition | None":
        """The partition; None if this broker no longer leads it. The topic is then forgotten, and looked up again for
        a later request."""
        partition = topic.partitions.get(index)
        if partition is None:
            try:
                partition = self._node.partition(topic.name, index, topic.topic_id)
            except Refused:
                return None
            topic.partitions[index] = partition
        if not partition.is_led or partition.topic_id != topic.topic_id:
            self.forget(topic)
            return None
        return partition

    def forget(self, topic: KnownTopic) -> None:
        for table, key in ((self.by_name, topic.name.encode()), (self.by_id, topic.topic_id)):
            known = table.get(key)
            if known is not None and known.topic is topic:
                del table[key]

    def _sweep(self) -> None:
        """Forget topics with a partition that this broker no longer leads, so that their logs do not stay in memory."""
        for known in list(self.by_name.values()):
            if known.topic.is_gone:
                self.forget(known.topic)
        self._sweep_at = max(_SWEPT_FROM, 2 * len(self.by_name))
