"""The uniform assignor: members get as many partitions as each other, and keep what they had where that allows it.

Rule 1: balance comes before stickiness. Where all members subscribed to the same topics, nobody has more than one
        partition more than anybody else.
Rule 2: a member gives up only what it has too much of, or what it is no longer subscribed to.
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
    """All members subscribed to the same topics: each has its quota, and some of them one more.

    Over all members, most of whom keep what they have: they cost a look each. `Balance.one_more` does without.
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
            # Somebody after it may already hold one more; the last ones have no choice.
            if has < quota:
                room[place] = quota - has
            continue
        else:
            room[place] = limit - has
        if limit > quota:
            with_one_more -= 1
            limit = quota + 1 if with_one_more else quota
    if room:
        # Where everything was somebody's, only what was just given up is free.
        free = iter(sorted(freed) if sum(sizes) == total else _free(spec, topics, shares, changed))
        for place, left in room.items():
            changed[place] = widen(changed.get(place, shares[place]), islice(free, left))
    return {member_ids[place]: share for place, share in changed.items()}


def _sizes(shares: Sequence[Assignment], topics: Set[bytes]) -> list[int]:
    """How many partitions each has of these topics, and it has no others."""
    if len(topics) == 1:
        (topic_id,) = topics
        return [len(share[topic_id]) if share else 0 for share in shares]
    return [sum(map(len, share.values())) for share in shares]


def _free(
    spec: GroupSpec, topics: Set[bytes], shares: Sequence[Assignment], changed: Mapping[int, Assignment]
) -> list[tuple[bytes, int]]:
    """What nobody has, in order."""
    now = [changed.get(place, share) for place, share in enumerate(shares)]
    free = []
    for topic_id in sorted(topics):
        taken = set().union(*[share[topic_id] for share in now if topic_id in share])
        left = set(range(spec.partitions[topic_id])) - taken
        free += [(topic_id, partition) for partition in sorted(left)]
    return free
