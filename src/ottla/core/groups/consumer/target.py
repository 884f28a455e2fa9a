"""Computes the target assignment: the partitions that each member should own, by the assignor that most members prefer.

Rule 1: the target is computed for a group epoch. It includes all changes of the decision that requests it.
Rule 2: only changed assignments of members are written, then the epoch: a reader of the records sees a whole target.
"""

from bisect import insort
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.core.groups.consumer.assignors import ASSIGNORS, NOTHING, UNIFORM, Assignment, GroupSpec, MemberSpec
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.group_records import GroupRecords
from ottla.core.groups.consumer.member import Member
from ottla.core.groups.consumer.topics import TopicView

_MANY: Final = 32
"""Groups with at least this many members maintain `Balance`. In smaller groups every join processes all members."""


class TargetAssignment(NamedTuple):
    epoch: int
    assignment: Assignment
    """The assignment of the member that sent the heartbeat."""


def subscribed_ids(group: ConsumerGroup, member: Member, topics: TopicView) -> frozenset[bytes]:
    """Ids of the existing topics that a member subscribed to by name or that its pattern matches."""
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
    records: GroupRecords,
) -> TargetAssignment:
    """Compute and write a new target. `member` has the changes of the request. It replaces the member with the same id
    or the same instance id."""
    parts = None
    if assignor == UNIFORM and is_homogeneous and _is_one_more(group, member):
        partitions = _sizes(subscribed_ids(group, member, topics), topics)
        parts = group.balance.one_more(member.member_id, group.member_ids, group.target, partitions)
    if parts is None:
        parts = _assigned(group, member, assignor, is_homogeneous, topics)
    for member_id in sorted(parts):
        if parts[member_id] != group.target.get(member_id):
            records.target(member_id, parts[member_id])
    records.target_epoch(epoch, now_ms)
    part = parts.get(member.member_id)
    return TargetAssignment(epoch, group.target[member.member_id] if part is None else part)


def _is_one_more(group: ConsumerGroup, member: Member) -> bool:
    """Whether a new member joins a large group in which every member has an assignment, and replaces none of them."""
    return (
        len(group.members) >= _MANY
        and group.is_assigned
        and member.member_id not in group.members
        and member.instance_id not in group.static_members
    )


def _assigned(
    group: ConsumerGroup, member: Member, assignor: str, is_homogeneous: bool, topics: TopicView
) -> dict[str, Assignment]:
    """The assignments that may have changed, computed from all members."""
    assigned: Mapping[str, Assignment] = group.target
    parts = dict.fromkeys([*group.unassigned, member.member_id], NOTHING)
    replaced = group.static_members.get(member.instance_id) if member.instance_id is not None else None
    if replaced is not None and replaced != member.member_id:
        parts[member.member_id] = assigned.get(replaced, NOTHING)
        assigned = {**assigned, **parts}
        parts.pop(replaced, None)
    elif member.member_id in assigned:
        del parts[member.member_id]
    member_ids = _ids_with(group, member, replaced)
    specs = (_same if is_homogeneous else _each)(group, member, member_ids, topics)
    counted = specs[member.member_id].topics
    if not is_homogeneous:
        counted = frozenset().union(*{spec.topics for spec in specs.values()})
    parts.update(ASSIGNORS[assignor](GroupSpec(specs, _sizes(counted, topics), is_homogeneous, assigned)))
    return parts


def _sizes(topic_ids: Iterable[bytes], topics: TopicView) -> dict[bytes, int]:
    return {topic_id: len(topics.image.topics_by_id[topic_id].partitions) for topic_id in topic_ids}


def _ids_with(group: ConsumerGroup, member: Member, replaced: str | None) -> list[str]:
    """The sorted ids of all members, with `member` and without the member that it replaces."""
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
    """The specifications of members that all have the same subscription. The topics are looked up once, and all members
    without an instance id share one specification."""
    subscribed = subscribed_ids(group, member, topics)
    specs = dict.fromkeys(member_ids, MemberSpec(subscribed))
    for instance_id, member_id in (*group.static_members.items(), (member.instance_id, member.member_id)):
        if instance_id is not None and member_id in specs:
            specs[member_id] = MemberSpec(subscribed, instance_id)
    return specs


def _subscribed(group: ConsumerGroup, member: Member) -> frozenset[str]:
    resolved = group.resolved_regexes.get(member.topic_regex) if member.topic_regex else None
    return member.topic_names if resolved is None else member.topic_names | resolved.topics
