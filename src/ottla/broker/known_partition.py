"""The partition that a lane's requests name: looked up once, and again when it is no longer this broker's."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.broker.partition import Partition


class KnownPartition:
    def __init__(self, topic: str, topic_id: bytes, index: int, *, by_id: bool) -> None:
        self.topic, self.topic_id, self.index = topic, topic_id, index
        self._by_id = by_id
        self._partition: Partition | None = None

    def on(self, node: "Node") -> "Partition":
        """Refused where it is not."""
        partition = self._partition
        if partition is None or partition.retired:
            name = node.topic_name(self.topic_id) if self._by_id else self.topic
            partition = self._partition = node.partition(name, self.index, self.topic_id)
        return partition
