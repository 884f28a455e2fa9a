"""The target assignment: which partitions each member should own, computed by the assignor that most members want.

Rule 1: it is computed for a group's epoch, with everything that the decision which asks for it is about to change.
Rule 2: only members whose part differs are written, and then the epoch: whoever reads the records sees a target whole.
"""

from collections.abc import Mapping
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
    members, assigned = {**group.members, member.member_id: member}, group.target
    if member.instance_id is not None:
        replaced = group.static_members.get(member.instance_id, member.member_id)
        if replaced != member.member_id:
            del members[replaced]
            assigned = {**assigned, member.member_id: assigned.get(replaced, {})}
    specs = _same(group, member, members, topics) if is_homogeneous else _each(group, members, topics)
    counted = specs[member.member_id].topics
    if not is_homogeneous:
        counted = frozenset().union(*{spec.topics for spec in specs.values()})
    partitions = {topic_id: len(topics.image.topics_by_id[topic_id].partitions) for topic_id in counted}
    assignment = ASSIGNORS[assignor](GroupSpec(specs, partitions, is_homogeneous, assigned))
    before = group.target
    written = [
        target_record(group.group_id, member_id, part)
        for member_id in specs
        if (part := assignment.get(member_id, NOTHING)) is not (old := before.get(member_id)) and part != old
    ]
    written.append(target_epoch_record(group.group_id, epoch, now_ms))
    return Target(epoch, assignment.get(member.member_id, NOTHING)), written


def _each(group: ConsumerGroup, members: Mapping[str, Member], topics: TopicView) -> dict[str, MemberSpec]:
    return {
        member_id: MemberSpec(subscribed_ids(group, one, topics), one.instance_id) for member_id, one in members.items()
    }


def _same(
    group: ConsumerGroup, member: Member, members: Mapping[str, Member], topics: TopicView
) -> dict[str, MemberSpec]:
    """All of them subscribed to what one did: they are looked up once, and told apart only where they are static."""
    subscribed = subscribed_ids(group, member, topics)
    specs = dict.fromkeys(members, MemberSpec(subscribed))
    for instance_id, member_id in (*group.static_members.items(), (member.instance_id, member.member_id)):
        if instance_id is not None and member_id in members:
            specs[member_id] = MemberSpec(subscribed, instance_id)
    return specs


def _subscribed(group: ConsumerGroup, member: Member) -> frozenset[str]:
    resolved = group.resolved_regexes.get(member.topic_regex) if member.topic_regex else None
    return member.topic_names if resolved is None else member.topic_names | resolved.topics
