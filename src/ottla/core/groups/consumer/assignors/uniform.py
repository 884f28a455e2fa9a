"""The uniform assignor: members get as many partitions as each other, and keep what they had where that allows it.

Rule 1: balance comes before stickiness. Where all members subscribed to the same topics, nobody has more than one
        partition more than anybody else.
Rule 2: a member gives up only what it has too much of, or what it is no longer subscribed to.
"""

from collections.abc import Mapping, Set
from itertools import islice

from ottla.core.groups.consumer.assignors.spec import NOTHING, Assignment, GroupSpec
from ottla.core.groups.consumer.assignors.uniform_mixed import assign_mixed


def assign_uniformly(spec: GroupSpec) -> Mapping[str, Assignment]:
    if not spec.members:
        return {}
    return _assign_same(spec) if spec.is_homogeneous else assign_mixed(spec)


def _assign_same(spec: GroupSpec) -> dict[str, Assignment]:
    """All members subscribed to the same topics: each has its quota, and some of them one more.

    This runs for everyone who joins, over all members, most of whom keep what they have: they cost a look each.
    """
    member_ids = sorted(spec.members)
    topics = spec.members[member_ids[0]].topics
    quota, with_one_more = divmod(sum(spec.partitions[topic_id] for topic_id in topics), len(member_ids))
    shares: dict[str, Assignment] = {}
    room: dict[str, int] = {}
    assigned = spec.assigned
    for place, member_id in enumerate(member_ids):
        share = assigned.get(member_id, NOTHING)
        limit = quota + 1 if with_one_more else quota
        has = 0
        for topic_id, partitions in share.items():
            has += len(partitions) if topic_id in topics else limit + 1
        if has > limit:
            share, has = _keep(share, topics, limit)
        shares[member_id] = share
        if has == limit:
            with_one_more -= limit > quota
        elif limit > quota and len(member_ids) - place > with_one_more:
            # Somebody after it may already hold one more; the last ones have no choice.
            if has < quota:
                room[member_id] = quota - has
        else:
            room[member_id] = limit - has
            with_one_more -= limit > quota

    free = iter(_free(spec, topics, shares) if room else ())
    for member_id, left in room.items():
        wider = {topic_id: set(partitions) for topic_id, partitions in shares[member_id].items()}
        for topic_id, partition in islice(free, left):
            wider.setdefault(topic_id, set()).add(partition)
        shares[member_id] = wider
    return shares


def _keep(share: Assignment, topics: Set[bytes], limit: int) -> tuple[Assignment, int]:
    """What a member keeps of its partitions, and how many they are."""
    kept: dict[bytes, Set[int]] = {}
    left = limit
    for topic_id in sorted(share.keys() & topics):
        if left:
            partitions = share[topic_id]
            kept[topic_id] = partitions if len(partitions) <= left else set(sorted(partitions)[:left])
            left -= len(kept[topic_id])
    return kept, limit - left


def _free(spec: GroupSpec, topics: Set[bytes], shares: Mapping[str, Assignment]) -> list[tuple[bytes, int]]:
    """What nobody has, in order."""
    free = []
    for topic_id in sorted(topics):
        taken = set().union(*[share[topic_id] for share in shares.values() if topic_id in share])
        left = set(range(spec.partitions[topic_id])) - taken
        free += [(topic_id, partition) for partition in sorted(left)]
    return free
