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
    topics, count = spec.members[member_ids[0]].topics, len(member_ids)
    quota, with_one_more = divmod(sum(spec.partitions[topic_id] for topic_id in topics), count)
    shares = [spec.assigned.get(member_id, NOTHING) for member_id in member_ids]
    if not set().union(*shares) <= topics:
        shares = [{topic_id: share[topic_id] for topic_id in share if topic_id in topics} for share in shares]
    room: dict[int, int] = {}
    for place, has in enumerate(_sizes(shares, topics)):
        limit = quota + 1 if with_one_more else quota
        if has >= limit:
            if has > limit:
                shares[place] = _keep(shares[place], limit)
            with_one_more -= limit > quota
        elif limit > quota and count - place > with_one_more:
            # Somebody after it may already hold one more; the last ones have no choice.
            if has < quota:
                room[place] = quota - has
        else:
            room[place] = limit - has
            with_one_more -= limit > quota

    free = iter(_free(spec, topics, shares) if room else ())
    for place, left in room.items():
        wider = {topic_id: set(partitions) for topic_id, partitions in shares[place].items()}
        for topic_id, partition in islice(free, left):
            wider.setdefault(topic_id, set()).add(partition)
        shares[place] = wider
    return dict(zip(member_ids, shares, strict=True))


def _sizes(shares: list[Assignment], topics: Set[bytes]) -> list[int]:
    """How many partitions each has of these topics, and it has no others."""
    if len(topics) == 1:
        (topic_id,) = topics
        return [len(share[topic_id]) if share else 0 for share in shares]
    return [sum(map(len, share.values())) for share in shares]


def _keep(share: Assignment, limit: int) -> Assignment:
    """What a member keeps of its partitions."""
    kept: dict[bytes, Set[int]] = {}
    for topic_id in sorted(share):
        if limit:
            partitions = share[topic_id]
            kept[topic_id] = partitions if len(partitions) <= limit else set(sorted(partitions)[:limit])
            limit -= len(kept[topic_id])
    return kept


def _free(spec: GroupSpec, topics: Set[bytes], shares: list[Assignment]) -> list[tuple[bytes, int]]:
    """What nobody has, in order."""
    free = []
    for topic_id in sorted(topics):
        taken = set().union(*[share[topic_id] for share in shares if topic_id in share])
        left = set(range(spec.partitions[topic_id])) - taken
        free += [(topic_id, partition) for partition in sorted(left)]
    return free
