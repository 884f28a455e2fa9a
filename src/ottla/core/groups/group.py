"""The interface that groups of every protocol offer to the code that commits, expires and deletes offsets."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ottla.core.runtime.shard import CoordinatorRecord

PartitionCheck = Callable[[str, bytes, int], None]
"""Raises Refused if the member may not commit the offset of a partition, given by topic name, topic id and index."""


class Committer(NamedTuple):
    """Identity of the client that commits offsets, as given in the request."""

    member_id: str
    group_instance_id: str | None
    generation_id: int
    """The generation or the member epoch; negative if the client does not commit as a member."""
    version: int
    """Version of the request. Older versions use other error codes."""
    is_transactional: bool = False


class GroupClient(NamedTuple):
    """The client that sends a request; the descriptions of members show its name and host."""

    name: str
    host: str
    version: int
    """Version of the request."""


class Group(Protocol):
    group_id: str

    @property
    def type(self) -> str:
        """`classic` or `consumer`."""

    @property
    def protocol_type(self) -> str:
        """`consumer`, `connect` or another type; empty for a group that has only offsets."""

    @property
    def state(self) -> str:
        """The name of the state, as tools show it."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    def check_commit(self, committer: Committer) -> PartitionCheck | None:
        """Raises Refused if the client may not commit. Returns a check per partition, or None if all are allowed."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raises Refused if the member id and epoch of an OffsetFetch are not those of a member."""

    def check_offset_deletion(self) -> None: ...

    def check_deletion(self) -> None: ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def retention_begins(self, committed_ms: int) -> int | None:
        """When the retention time of an offset committed at `committed_ms` starts; None if it has not started."""

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """The records that delete the group."""
