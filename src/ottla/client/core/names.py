"""Names of things in a cluster."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class GroupMetadata(NamedTuple):
    """The group, and optionally the member, that commits offsets. With a member, stale commits are refused."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
