"""What an assignor is told and what it answers.

Rule 1: an assignor is a function: the same specification gives the same assignment.
Rule 2: every partition of a topic that somebody subscribed to goes to exactly one of its subscribers.
Rule 3: who joins changes the parts of a few: an assignor may leave out whoever keeps what it has.
Rule 4: what it is given is not changed, and what it answers becomes part of the group as it is: nobody can change it.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; a topic without partitions is left out."""
NOTHING: Final[Assignment] = MappingProxyType({})


class MemberSpec(NamedTuple):
    """A member as an assignor sees it."""

    topics: Set[bytes]
    """The ids of the topics that it subscribed to and that exist."""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    members: Mapping[str, MemberSpec]
    """By member id; quickest in the order of the ids."""
    partitions: Mapping[bytes, int]
    """How many partitions each subscribed topic has, by topic id."""
    is_homogeneous: bool
    """All members subscribed to the same topics."""
    assigned: Mapping[str, Assignment] = field(default_factory=dict)
    """The members' parts of the target assignment so far, and maybe parts of others."""

    def assigned_to(self, member_id: str) -> Assignment:
        return self.assigned.get(member_id, NOTHING)


Assignor = Callable[[GroupSpec], Mapping[str, Assignment]]
"""Gives the partitions of each member that gets others than it has; who is left out keeps what it has."""
