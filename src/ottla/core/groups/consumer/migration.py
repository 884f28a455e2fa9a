"""Conversion of a running group from one protocol to the other (`group.consumer.migration.policy`).

Rule 1: a classic group becomes a consumer group when the first member of the consumer protocol joins. The other members
        stay and keep their partitions. They use the classic protocol as members of a consumer group.
Rule 2: a consumer group becomes classic when the last member of the consumer protocol leaves, or comes back as a
        classic member. If every member had reached the target, and no part of it has become free, the members keep the
        target as their assignment. Otherwise they keep the partitions that they own and rebalance with a leader.
Rule 3: in both directions one decision removes the old group from the log and writes the new one. A reader of any
        prefix of whole decisions sees exactly one of the two. Offsets do not change.
Rule 4: a partition has one owner through any number of conversions. So a member counts as the owner of the last
        assignment that it was sent until it has joined again. Its part of the target or of the current rebalance does
        not count.
Rule 5: a rebalance that a conversion interrupts or requires is not lost. A consumer group that was converted during a
        rebalance has an epoch greater than that of its target. A classic group that has to rebalance has no leader in
        its record, so that it also rebalances when a coordinator loads it.
"""

from collections.abc import Collection

from ottla.core.groups.classic_group import ClassicGroup, ClassicMember, State
from ottla.core.groups.classic_responses import join_refused, sync_refused
from ottla.core.groups.consumer import records as written
from ottla.core.groups.consumer.assignors import Assignment
from ottla.core.groups.consumer.embedded import by_id, read_assignment, read_subscription, version_of, write_assignment
from ottla.core.groups.consumer.group import CONSUMER, ConsumerGroup
from ottla.core.groups.consumer.groups import Awaited, ConsumerGroups
from ottla.core.groups.consumer.member import ClassicMemberMetadata, Member, owned
from ottla.core.groups.consumer.topics import TopicView
from ottla.core.groups.timers import Timer
from ottla.core.runtime.decision import Token
from ottla.core.runtime.shard import CoordinatorRecord
from ottla.wire.codec import Malformed
from ottla.wire.errors import Error, Refused

Wake = list[tuple[Token, object]]


# Classic to consumer.


def upgrade(
    here: ConsumerGroups, classic: ClassicGroup, now_ms: int
) -> tuple[ConsumerGroup, list[CoordinatorRecord], Wake]:
    """Convert a classic group. Returns the consumer group, the records, and the responses to parked requests."""
    _check_upgrade(here, classic)
    group_id = classic.group_id
    try:
        members = [_upgraded(classic, member, here.topics) for member in classic.members.values()]
    except Malformed as error:
        raise Refused(
            Error.GROUP_ID_NOT_FOUND, f"group {group_id!r}: a member's subscription or assignment is malformed: {error}"
        ) from error
    epoch = classic.generation_id
    is_rebalancing = classic.phase is not State.STABLE or classic.is_unassigned
    names = {name for member, _ in members for name in member.topic_names}
    records = [
        *classic.tombstones(),
        *(written.member_record(group_id, member) for member, _ in members),
        written.epoch_record(group_id, epoch + is_rebalancing, here.topics.hash_of(names)),
        *(written.target_record(group_id, member.member_id, assignment) for member, assignment in members),
        written.target_epoch_record(group_id, epoch, 0),
        *(written.current_record(group_id, member) for member, _ in members),
    ]
    group = ConsumerGroup(group_id)
    for record in records:
        group.replay(record.key, record.value)
    for member, _ in members:
        here.expect(group_id, member, now_ms)
    return group, records, _told_to_join_again(classic)


def _check_upgrade(here: ConsumerGroups, classic: ClassicGroup) -> None:
    if not here.settings.may_upgrade:
        reason = "group.consumer.migration.policy does not allow it"
    elif classic.protocol_type != CONSUMER:
        reason = f"its members are not consumers but of type {classic.protocol_type!r}"
    elif len(classic.members) > here.settings.members_max:
        reason = f"it has {len(classic.members)} members, group.consumer.max.size is {here.settings.members_max}"
    else:
        return
    raise Refused(
        Error.GROUP_ID_NOT_FOUND,
        f"group {classic.group_id!r} cannot go from the classic to the consumer protocol: {reason}",
    )


def _upgraded(classic: ClassicGroup, member: ClassicMember, topics: TopicView) -> tuple[Member, Assignment]:
    assignment: Assignment = {}
    last_told = classic.last_assignment(member)
    if last_told:
        told = read_assignment(last_told)
        if told.user_data:
            raise Refused(
                Error.GROUP_ID_NOT_FOUND,
                f"group {classic.group_id!r} cannot go to the consumer protocol: its assignor keeps data of its own in "
                "assignments, which would be lost; let the consumers use a standard assignor first",
            )
        assignment = by_id(told.assigned_partitions, topics)
    subscription = read_subscription(member.metadata(classic.protocol_name or classic.selected_protocol()))
    epoch = classic.generation_id
    return Member(
        member_id=member.member_id,
        member_epoch=epoch,
        previous_member_epoch=epoch,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        assigned=owned(assignment, epoch),
        classic=ClassicMemberMetadata(
            member.session_timeout_ms, tuple((name, bytes(data)) for name, data in member.protocols)
        ),
    ), assignment


def _told_to_join_again(classic: ClassicGroup) -> Wake:
    wake: Wake = []
    for member in classic.members.values():
        if member.join_token is not None:
            wake.append((member.join_token, join_refused(Error.REBALANCE_IN_PROGRESS, member.member_id)))
        if member.sync_token is not None:
            wake.append((member.sync_token, sync_refused(Error.REBALANCE_IN_PROGRESS)))
    return wake


# Consumer to classic.


def may_downgrade(here: ConsumerGroups, group: ConsumerGroup, leaving: Collection[Member], joining: int = 0) -> bool:
    """Whether the group may become classic: without the members in `leaving` only classic members are left, their
    number is at least one and within the limit of classic groups, and the policy allows it."""
    left = len(group.members) - len(leaving)
    classic = group.classic_members - sum(member.classic is not None for member in leaving)
    size = left + joining
    return classic == left and 0 < size <= here.settings.classic_members_max and here.settings.may_downgrade


def downgrade(
    here: ConsumerGroups,
    group: ConsumerGroup,
    leaving: Collection[Member],
    now_ms: int,
    *,
    joining: Member | None = None,
    rebalances: bool,
) -> list[CoordinatorRecord]:
    """The records that convert a group to a classic one. `joining` replaces the member that leaves."""
    gone = {member.member_id for member in leaving}
    members = [member for member_id, member in group.members.items() if member_id not in gone]
    in_log = dict.fromkeys(group.members)
    if joining is not None:
        members.append(joining)
        # Earlier records of the same decision have removed the replaced member and written `joining`.
        in_log = dict.fromkeys(member.member_id for member in members)
    parts = {one.member_id: _owned_by(one) if rebalances else group.target_of(one) for one in members}
    classic = _downgraded(group, members, parts, here.topics, now_ms)
    if rebalances:
        classic.leader_id = None
    for member_id in group.members:
        here.forget(group.group_id, member_id)
    here.deadlines.set(Timer(Awaited.DOWNGRADE, group.group_id), now_ms)
    return [*written.no_group(group.group_id, in_log, group.resolved_regexes), classic.record()]


def _owned_by(member: Member) -> Assignment:
    """The partitions that a member owns, including those that it must give up and has not reported as given up."""
    parts: dict[bytes, frozenset[int]] = {}
    for owned_partitions in (member.assigned, member.pending_revocation):
        for topic_id, epochs in owned_partitions.items():
            parts[topic_id] = parts.get(topic_id, frozenset()).union(epochs)
    return parts


def _downgraded(
    group: ConsumerGroup, members: list[Member], parts: dict[str, Assignment], topics: TopicView, now_ms: int
) -> ClassicGroup:
    classic = ClassicGroup(group.group_id, now_ms)
    classic.generation_id = group.epoch
    for member in members:
        assert member.classic is not None, "only classic members are left"
        classic.add(
            ClassicMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocols=member.classic.protocols,
            ),
            CONSUMER,
        )
    classic.protocol_name = classic.selected_protocol()
    for one in classic.members.values():
        try:
            version = version_of(one.metadata(classic.protocol_name))
        except Malformed as error:
            raise Refused(
                Error.GROUP_ID_NOT_FOUND,
                f"group {group.group_id!r} cannot go to the classic protocol: {one.member_id} has {error}",
            ) from error
        one.assignment = write_assignment(parts[one.member_id], version, topics)
    return classic
