"""The uniform assignor: all members get the same number of partitions, and keep the ones they have if possible.

Rule 1: balance comes before stickiness. If all members subscribed to the same topics, the numbers of partitions of any
        two members differ by at most one.
Rule 2: a member gives up only partitions beyond its quota, or of topics that it no longer subscribes to.
"""

from collections.abc import Mapping, Sequence, Set
from itertools import islice, repeat

from ottla.core.groups.consumer.assignors.balance import keep, widen
from ottla.core.groups.consumer.assignors.spec import NOTHING, Assignment, GroupSpec
from ottla.core.groups.consumer.assignors.uniform_mixed import assign_mixed


def assign_uniformly(spec: GroupSpec) -> Mapping[str, Assignment]:
    if not spec.members:
        return {}
    return _assign_same(spec) if spec.is_homogeneous else assign_mixed(spec)


def _assign_same(spec: GroupSpec) -> dict[str, Assignment]:
    """Assign partitions if all members subscribed to the same topics: each gets the quota, and some get one more.

    Visits all members, though most of them keep their partitions. `Balance.one_more` avoids that.
    """
    member_ids = sorted(spec.members)
    topics, count = spec.members[member_ids[0]].topics, len(member_ids)
    total = sum(spec.partitions[topic_id] for topic_id in topics)
    quota, with_one_more = divmod(total, count)
    shares: list[Assignment] = list(map(spec.assigned.get, member_ids, repeat(NOTHING)))
    changed: dict[int, Assignment] = {}
    if not set().union(*shares) <= topics:
        for place, share in enumerate(shares):
            if not share.keys() <= topics:
                shares[place] = changed[place] = {topic: share[topic] for topic in share if topic in topics}
    sizes = _sizes(shares, topics)
    room: dict[int, int] = {}
    freed: list[tuple[bytes, int]] = []
    limit = quota + 1 if with_one_more else quota
    for place, has in enumerate(sizes):
        if has >= limit:
            if has > limit:
                changed[place] = keep(shares[place], limit, freed)
        elif limit > quota and count - place > with_one_more:
            # A later member may already have quota + 1 partitions. Only the last members must take the remaining ones.
            if has < quota:
                room[place] = quota - has
            continue
        else:
            room[place] = limit - has
        if limit > quota:
            with_one_more -= 1
            limit = quota + 1 if with_one_more else quota
    if room:
        # If every partition had an owner, only the partitions in `freed` are free.
        free = iter(sorted(freed) if sum(sizes) == total else _free(spec, topics, shares, changed))
        for place, left in room.items():
            changed[place] = widen(changed.get(place, shares[place]), islice(free, left))
    return {member_ids[place]: share for place, share in changed.items()}


def _sizes(shares: Sequence[Assignment], topics: Set[bytes]) -> list[int]:
    """The number of partitions of each share. The shares contain no topics other than `topics`."""
    if len(topics) == 1:
        (topic_id,) = topics
        return [len(share[topic_id]) if share else 0 for share in shares]
    return [sum(map(len, share.values())) for share in shares]


def _free(
    spec: GroupSpec, topics: Set[bytes], shares: Sequence[Assignment], changed: Mapping[int, Assignment]
) -> list[tuple[bytes, int]]:
    """The partitions without an owner, sorted."""
    now = [changed.get(place, share) for place, share in enumerate(shares)]
    free = []
    for topic_id in sorted(topics):
        taken = set().union(*[share[topic_id] for share in now if topic_id in share])
        left = set(range(spec.partitions[topic_id])) - taken
        free += [(topic_id, partition) for partition in sorted(left)]
    return free
