"""The input and output of an assignor.

Rule 1: an assignor is a pure function: the same specification gives the same assignment.
Rule 2: every partition of a subscribed topic is assigned to exactly one of its subscribers.
Rule 3: the result need not contain the members whose assignment stays the same, because a member that joins changes
        the assignments of only a few.
Rule 4: an assignor does not change its input. Its result becomes part of the group without a copy, so it is immutable.
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
    """Ids of the existing topics that the member subscribed to."""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    members: Mapping[str, MemberSpec]
    """By member id. Assignors are fastest if the ids are sorted."""
    partitions: Mapping[bytes, int]
    """Number of partitions of each subscribed topic, by topic id."""
    is_homogeneous: bool
    """Whether all members subscribed to the same topics."""
    assigned: Mapping[str, Assignment] = field(default_factory=dict)
    """The current target assignment by member id. It may contain ids that are not in `members`."""

    def assigned_to(self, member_id: str) -> Assignment:
        return self.assigned.get(member_id, NOTHING)


Assignor = Callable[[GroupSpec], Mapping[str, Assignment]]
"""Returns the new assignment of each member whose assignment changes. A member that is not in the result keeps its
assignment."""
