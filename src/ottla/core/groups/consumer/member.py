"""A member of a consumer group.

Rule 1: a member is immutable. A change creates a new `Member`, and `replay` replaces the old one by it.
Rule 2: a member owns the partitions in `assigned`. It also owns those in `pending_revocation` until it reports that it
        gave them up. No other member gets an owned partition.
Rule 3: each owned partition has the epoch in which it was assigned to the member. A commit with an older epoch is from
        before another member owned the partition.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.core.groups.consumer.assignors import Assignment

LEAVE_EPOCH: Final = -1
"""Sent by a member that leaves; also the epoch of a member whose assignment was removed from the log."""
LEAVE_FOR_A_WHILE_EPOCH: Final = -2
"""Sent by a static member that leaves and will come back; also its epoch until then."""

OwnedPartitions = Mapping[bytes, Mapping[int, int]]
"""Assignment epoch by partition by topic id; a topic without partitions is left out."""
NOTHING_OWNED: Final[OwnedPartitions] = MappingProxyType({})


class MemberState(IntEnum):
    """The state of a member's reconciliation with the target assignment, with the numbers used in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member has not yet given up the partitions in `pending_revocation`."""
    UNRELEASED_PARTITIONS = 2
    """The member is in the target's epoch, but other members still own some partitions of its target assignment."""
    UNKNOWN = 127
    """A state written by a release that has more states."""

    @classmethod
    def _missing_(cls, _value: object) -> "MemberState":
        return cls.UNKNOWN


class ClassicMemberMetadata(NamedTuple):
    """The additional data of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Names of assignors, each with the subscription, the preferred one first."""


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
    classic: ClassicMemberMetadata | None = None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state == MemberState.STABLE and self.member_epoch == assignment_epoch

    def counts_as(self, other: "Member") -> bool:
        """Whether both members are equal in all fields over which a group counts its members. Owned partitions are not
        compared."""
        return (
            self.topic_names == other.topic_names
            and self.topic_regex == other.topic_regex
            and self.server_assignor == other.server_assignor
            and (self.classic is None) == (other.classic is None)
        )

    def in_epoch(self, epoch: int, state: MemberState, assigned: OwnedPartitions, pending: OwnedPartitions) -> "Member":
        """The member after a step. Its current epoch becomes the previous epoch, because the response may get lost."""
        # Does not use `_replace`, which is slow: this is called at every step of every member.
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
        """The epoch in which an owned partition was assigned; None if the member does not own it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch


def owned(assignment: Assignment, epoch: int) -> OwnedPartitions:
    return {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in assignment.items()}
