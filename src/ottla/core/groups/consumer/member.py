"""A member of a consumer group.

Rule 1: a member is a value: what changes makes a new one, and `replay` puts it in the old one's place.
Rule 2: a member owns `assigned` and, until it has said that it gave them up, `pending_revocation`. Nobody else is given
        any of them before.
Rule 3: each owned partition carries the epoch in which the member got it: a commit with an older epoch than that comes
        from before somebody else had the partition.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.core.groups.consumer.assignors import Assignment

LEAVE_EPOCH: Final = -1
"""Sent by a member that leaves, and held by one whose assignment was removed from the log."""
LEAVE_FOR_A_WHILE_EPOCH: Final = -2
"""Sent by a static member that will be back, and held by it until then."""

OwnedPartitions = Mapping[bytes, Mapping[int, int]]
"""Assignment epoch by partition by topic id; a topic without partitions is left out."""
NOTHING_OWNED: Final[OwnedPartitions] = MappingProxyType({})


class MemberState(IntEnum):
    """Where a member is on its way to the target assignment; the numbers are those of the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has yet to give up `pending_revocation`."""
    UNRELEASED_PARTITIONS = 2
    """It is in the target's epoch, and somebody else still owns some of what is to be its own."""
    UNKNOWN = 127
    """Written by a release that knows more states."""

    @classmethod
    def _missing_(cls, _value: object) -> "MemberState":
        return cls.UNKNOWN


class ClassicMember(NamedTuple):
    """What is remembered of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Assignor and subscription, the preferred one first."""


class Member(NamedTuple):
    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: OwnedPartitions = NOTHING_OWNED
    pending_revocation: OwnedPartitions = NOTHING_OWNED
    classic: ClassicMember | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state == MemberState.STABLE and self.member_epoch == assignment_epoch

    def counts_as(self, other: "Member") -> bool:
        """Nothing that a group counts over its members is different: where they are, not what they own."""
        return (
            self.topic_names == other.topic_names
            and self.topic_regex == other.topic_regex
            and self.server_assignor == other.server_assignor
            and (self.classic is None) == (other.classic is None)
        )

    def in_epoch(self, epoch: int, state: MemberState, assigned: OwnedPartitions, pending: OwnedPartitions) -> "Member":
        """The member one step further, with the epoch it comes from remembered: its answer may get lost."""
        # Without `_replace`, which goes through all fields by name: every step of every member comes by here.
        return Member(
            self.member_id,
            epoch,
            self.member_epoch,
            state,
            self.instance_id,
            self.rack_id,
            self.rebalance_timeout_ms,
            self.client_id,
            self.client_host,
            self.topic_names,
            self.topic_regex,
            self.server_assignor,
            assigned,
            pending,
            self.classic,
        )

    def owned_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """In which epoch it got a partition that it owns."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch


def owned(assignment: Assignment, epoch: int) -> OwnedPartitions:
    return {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in assignment.items()}
