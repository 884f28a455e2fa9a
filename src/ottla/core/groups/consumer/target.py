"""The target assignment: which partitions each member should own, computed by the assignor that most members want.

Rule 1: it is computed for a group's epoch, with everything that the decision which asks for it is about to change.
Rule 2: only members whose part differs are written, and then the epoch: whoever reads the records sees a target whole.
"""

from bisect import insort
from itertools import filterfalse
from operator import itemgetter
from typing import NamedTuple

from ottla.core.coordination import CoordinatorRecord
from ottla.core.groups.consumer.assignors import ASSIGNORS, NOTHING, Assignment, GroupSpec, MemberSpec
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.member import Member
from ottla.core.groups.consumer.records import target_epoch_record, target_record
from ottla.core.groups.consumer.topics import TopicView


class Target(NamedTuple):
    epoch: int
    assignment: Assignment
    """The part of the member that asked."""


def subscribed_ids(group: ConsumerGroup, member: Member, topics: TopicView) -> frozenset[bytes]:
    """The topics of a member that exist: those it named and those its pattern was found to match."""
    return topics.ids(_subscribed(group, member))


def compute_target(
    group: ConsumerGroup,
    epoch: int,
    member: Member,
    *,
    assignor: str,
    is_homogeneous: bool,
    topics: TopicView,
    now_ms: int,
) -> tuple[Target, list[CoordinatorRecord]]:
    """A new target with `member` as it will be, in place of the static member whose instance it is, if any."""
    before = assigned = group.target
    replaced = group.static_members.get(member.instance_id) if member.instance_id is not None else None
    if replaced is not None and replaced != member.member_id:
        assigned = {**assigned, member.member_id: assigned.get(replaced, NOTHING)}
    member_ids = _ids_with(group, member, replaced)
    specs = (_same if is_homogeneous else _each)(group, member, member_ids, topics)
    counted = specs[member.member_id].topics
    if not is_homogeneous:
        counted = frozenset().union(*{spec.topics for spec in specs.values()})
    partitions = {topic_id: len(topics.image.topics_by_id[topic_id].partitions) for topic_id in counted}
    parts = dict.fromkeys(filterfalse(before.__contains__, member_ids), NOTHING)
    if assigned is not before:
        parts[member.member_id] = assigned[member.member_id]
    parts.update(ASSIGNORS[assignor](GroupSpec(specs, partitions, is_homogeneous, assigned)))
    written = [
        target_record(group.group_id, member_id, part)
        for member_id, part in sorted(parts.items(), key=itemgetter(0))
        if part != before.get(member_id)
    ]
    written.append(target_epoch_record(group.group_id, epoch, now_ms))
    part = parts.get(member.member_id)
    return Target(epoch, before[member.member_id] if part is None else part), written


def _ids_with(group: ConsumerGroup, member: Member, replaced: str | None) -> list[str]:
    """Of all members, in order, with this one and without the one it replaces."""
    member_ids = group.member_ids.copy()
    if member.member_id not in group.members:
        insort(member_ids, member.member_id)
    if replaced is not None and replaced != member.member_id:
        member_ids.remove(replaced)
    return member_ids


def _each(group: ConsumerGroup, member: Member, member_ids: list[str], topics: TopicView) -> dict[str, MemberSpec]:
    members = {**group.members, member.member_id: member}
    return {
        member_id: MemberSpec(subscribed_ids(group, one := members[member_id], topics), one.instance_id)
        for member_id in member_ids
    }


def _same(group: ConsumerGroup, member: Member, member_ids: list[str], topics: TopicView) -> dict[str, MemberSpec]:
    """All of them subscribed to what one did: they are looked up once, and told apart only where they are static."""
    subscribed = subscribed_ids(group, member, topics)
    specs = dict.fromkeys(member_ids, MemberSpec(subscribed))
    for instance_id, member_id in (*group.static_members.items(), (member.instance_id, member.member_id)):
        if instance_id is not None and member_id in specs:
            specs[member_id] = MemberSpec(subscribed, instance_id)
    return specs


def _subscribed(group: ConsumerGroup, member: Member) -> frozenset[str]:
    resolved = group.resolved_regexes.get(member.topic_regex) if member.topic_regex else None
    return member.topic_names if resolved is None else member.topic_names | resolved.topics
