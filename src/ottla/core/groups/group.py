"""What every kind of group answers to, whatever its protocol: offsets are committed, kept and deleted the same way."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ottla.core.coordination import CoordinatorRecord

PartitionCheck = Callable[[str, bytes, int], None]
"""Refuses a commit for one partition of a topic (name, id, index); members of consumer groups hold only some."""


class Committer(NamedTuple):
    """Who commits offsets, as the request has it."""

    member_id: str
    group_instance_id: str | None
    generation_id: int
    """Or the member's epoch; negative: not as a member."""
    version: int
    """Of the request: older clients are told older errors."""
    is_transactional: bool = False


class Group(Protocol):
    group_id: str

    @property
    def type(self) -> str:
        """`classic` or `consumer`."""

    @property
    def protocol_type(self) -> str:
        """What its members are to each other: `consumer`, `connect`; empty: offsets are all there is."""

    @property
    def state(self) -> str:
        """As tools show it."""

    @property
    def is_empty(self) -> bool:
        """It has no members."""

    def check_commit(self, committer: Committer) -> PartitionCheck | None:
        """Refuses a commit; None: every partition may be committed."""

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuses to tell a member its offsets when it is not what it says."""

    def check_offset_deletion(self) -> None: ...

    def check_deletion(self) -> None: ...

    def is_subscribed_to(self, topic: str) -> bool: ...

    def retention_begins(self, committed_ms: int) -> int | None:
        """When the retention of an offset that was committed then begins to count; None: not yet."""

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """The records that delete the group."""
