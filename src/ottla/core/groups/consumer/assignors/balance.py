"""How evenly partitions are shared out, kept up with every part that changes.

The uniform assignor runs for everyone who joins. In a group that is balanced the newcomer's share comes from a few
members, and which ones they are can be told from the sizes of the shares, without a look at anybody else.

Rule 1: `put` is told of every change of every member's part.
Rule 2: `one_more` answers what `assign_uniformly` would, or None where it takes that one to tell.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence

from ottla.core.groups.consumer.assignors.spec import NOTHING, Assignment


class Balance:
    def __init__(self) -> None:
        self._by_size: dict[int, list[str]] = {}
        """Member ids in order, by how many partitions they have."""
        self._counts: dict[bytes, int] = {}
        """How many partitions of each topic are somebody's."""

    def put(self, member_id: str, old: Assignment | None, new: Assignment | None) -> None:
        """One part in place of another of the same member; None where there is none."""
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
        """The parts that change when a member joins `others`, who are in order, all have a part, and want the same."""
        if self._counts != partitions or not self._by_size:
            return None  # Something is nobody's, or no longer wanted.
        least = min(self._by_size)
        if max(self._by_size) > least + 1:
            return None
        quota, with_one_more = divmod(sum(partitions.values()), len(others) + 1)
        larger = self._by_size.get(least + 1, [])
        if least == quota:
            limits = dict.fromkeys(larger[with_one_more:], quota)
        elif least == quota + 1:
            # In order, the first ones keep one more than the quota, and all others have too much.
            rest = others[with_one_more:]
            before = bisect_left(larger, rest[0]) if rest else len(larger)
            limits = dict.fromkeys(larger[:before], quota + 1) | dict.fromkeys(rest, quota)
        else:
            return None
        freed: list[tuple[bytes, int]] = []
        changed = {giver: keep(assigned[giver], limit, freed) for giver, limit in limits.items()}
        return changed | {member_id: widen(NOTHING, sorted(freed))}


def keep(share: Assignment, limit: int, freed: list[tuple[bytes, int]]) -> Assignment:
    """What a member keeps of its partitions; the others are `freed`."""
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
