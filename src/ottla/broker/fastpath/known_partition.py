"""The partition that a lane's requests name. It is looked up once, and again when this broker no longer leads it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.broker.partitions.partition import Partition


class KnownPartition:
    def __init__(self, topic: str, topic_id: bytes, index: int, *, by_id: bool) -> None:
        self.topic, self.topic_id, self.index = topic, topic_id, index
        self._by_id = by_id
        self._partition: Partition | None = None

    def on(self, node: "Node") -> "Partition":
        """The partition on this node. Raises Refused if this broker does not lead it."""
        partition = self._partition
        if partition is None or not partition.is_led:
            name = node.topic_name(self.topic_id) if self._by_id else self.topic
            partition = self._partition = node.partition(name, self.index, self.topic_id)
        return partition
