"""Statistics of the target assignment by share size, which make the uniform assignor cheap when a member joins.

The uniform assignor runs for every member that joins. In a balanced group the share of the new member comes from a few
members. The sizes of the shares determine which members these are, so the other members need not be visited.

Rule 1: `put` must be called for every change of any member's assignment.
Rule 2: `one_more` returns the same result as `assign_uniformly`, or None if only `assign_uniformly` can compute it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from ottla.core.groups.consumer.assignors.spec import NOTHING, Assignment


class Balance:
    def __init__(self) -> None:
        self._by_size: dict[int, list[str]] = {}
        """Sorted member ids, by the number of partitions that the member has."""
        self._counts: dict[bytes, int] = {}
        """Number of assigned partitions, by topic id."""

    def put(self, member_id: str, old: Assignment | None, new: Assignment | None) -> None:
        """Replace the assignment of a member. None stands for no assignment."""
        if old is not None:
            size = self._count(old, -1)
            alike = self._by_size[size]
            del alike[bisect_left(alike, member_id)]
            if not alike:
                del self._by_size[size]
        if new is not None:
            insort(self._by_size.setdefault(self._count(new, 1), []), member_id)

    def _count(self, part: Assignment, sign: int) -> int:
        size = 0
        for topic_id, partitions in part.items():
            size += len(partitions)
            self._counts[topic_id] = self._counts.get(topic_id, 0) + sign * len(partitions)
            if not self._counts[topic_id]:
                del self._counts[topic_id]
        return size

    def one_more(
        self, member_id: str, others: Sequence[str], assigned: Mapping[str, Assignment], partitions: Mapping[bytes, int]
    ) -> dict[str, Assignment] | None:
        """The assignments that change when a member joins `others`. These are sorted, all have an assignment, and have
        the same subscription as the new member."""
        if self._counts != partitions or not self._by_size:
            return None  # A partition has no owner, or an assigned topic is no longer subscribed to.
        least = min(self._by_size)
        if max(self._by_size) > least + 1:
            return None
        quota, with_one_more = divmod(sum(partitions.values()), len(others) + 1)
        larger = self._by_size.get(least + 1, [])
        if least == quota:
            limits = dict.fromkeys(larger[with_one_more:], quota)
        elif least == quota + 1:
            # The first members by id keep one partition more than the quota. All others have too many.
            rest = others[with_one_more:]
            before = bisect_left(larger, rest[0]) if rest else len(larger)
            limits = dict.fromkeys(larger[:before], quota + 1) | dict.fromkeys(rest, quota)
        else:
            return None
        freed: list[tuple[bytes, int]] = []
        changed = {giver: keep(assigned[giver], limit, freed) for giver, limit in limits.items()}
        return changed | {member_id: widen(NOTHING, sorted(freed))}


def keep(share: Assignment, limit: int, freed: list[tuple[bytes, int]]) -> Assignment:
    """The first `limit` partitions of a share. The other partitions are appended to `freed`."""
    kept: dict[bytes, frozenset[int]] = {}
    for topic_id in sorted(share):
        partitions = share[topic_id]
        if len(partitions) <= limit:
            kept[topic_id] = partitions
            limit -= len(partitions)
            continue
        in_order = sorted(partitions)
        if limit:
            kept[topic_id] = frozenset(in_order[:limit])
        freed += [(topic_id, partition) for partition in in_order[limit:]]
        limit = 0
    return kept


def widen(share: Assignment, more: Iterable[tuple[bytes, int]]) -> Assignment:
    wider = {topic_id: set(partitions) for topic_id, partitions in share.items()}
    for topic_id, partition in more:
        wider.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(partitions) for topic_id, partitions in wider.items()}
