"""The uniform assignor: members get as many partitions as each other, and keep what they had where that allows it.

Rule 1: balance comes before stickiness. Where all members subscribed to the same topics, nobody has more than one
        partition more than anybody else.
Rule 2: a member gives up only what it has too much of, or what it is no longer subscribed to.
"""

from collections.abc import Mapping, Set
from itertools import islice

from ottla.core.groups.consumer.assignors.spec import Assignment, GroupSpec
from ottla.core.groups.consumer.assignors.uniform_mixed import assign_mixed


def assign_uniformly(spec: GroupSpec) -> Mapping[str, Assignment]:
    if not spec.members:
        return {}
    return _assign_same(spec) if spec.is_homogeneous else assign_mixed(spec)


def _assign_same(spec: GroupSpec) -> dict[str, Assignment]:
    """All members subscribed to the same topics: each has its quota, and some of them one more."""
    members = sorted(spec.members.items())
    topics = sorted(members[0][1].topics)
    quota, with_one_more = divmod(sum(spec.partitions[topic_id] for topic_id in topics), len(members))
    kept: dict[str, Assignment] = {}
    room: dict[str, int] = {}
    for place, (member_id, member) in enumerate(members):
        has_one_more = with_one_more > 0
        kept[member_id], left = _keep(member.assigned, topics, quota + has_one_more)
        if left > 0 and has_one_more and len(members) - place > with_one_more:
            # Somebody after it may already hold one more; the last ones have no choice.
            left, has_one_more = left - 1, False
        if left:
            room[member_id] = left
        with_one_more -= has_one_more

    free = iter(_free(spec, topics, kept))
    for member_id, left in room.items():
        wider = {topic_id: set(partitions) for topic_id, partitions in kept[member_id].items()}
        for topic_id, partition in islice(free, left):
            wider.setdefault(topic_id, set()).add(partition)
        kept[member_id] = wider
    return kept


def _keep(assigned: Assignment, topics: list[bytes], quota: int) -> tuple[Assignment, int]:
    """What a member keeps of its partitions, and how many more it may get."""
    kept: dict[bytes, Set[int]] = {}
    for topic_id in topics:
        if quota and (partitions := assigned.get(topic_id)):
            kept[topic_id] = partitions if len(partitions) <= quota else set(sorted(partitions)[:quota])
            quota -= len(kept[topic_id])
    return kept, quota


def _free(spec: GroupSpec, topics: list[bytes], kept: Mapping[str, Assignment]) -> list[tuple[bytes, int]]:
    free = {topic_id: set(range(spec.partitions[topic_id])) for topic_id in topics}
    for assignment in kept.values():
        for topic_id, partitions in assignment.items():
            free[topic_id] -= partitions
    return [(topic_id, partition) for topic_id in topics for partition in sorted(free[topic_id])]
