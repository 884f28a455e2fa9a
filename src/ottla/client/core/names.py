"""What things of a cluster are called."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class GroupMetadata(NamedTuple):
    """In whose name offsets are committed. With a member, a group that has moved on refuses them."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
