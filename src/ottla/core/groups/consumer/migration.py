"""A group changes its protocol while it runs (`group.consumer.migration.policy`).

Rule 1: classic to consumer: when the first member of the consumer protocol joins. The others stay, with what they own,
        and go on in the classic protocol as members of a consumer group.
Rule 2: consumer to classic: when the last member of the consumer protocol goes, or comes back as a classic one. Where
        every member had reached the target, and nobody's part of it is free now, they go on with it. Otherwise they
        keep what they own and rebalance by their own leader.
Rule 3: either way one decision removes the old group from the log and writes the new one: a reader of any prefix that
        holds whole decisions sees one of the two. Offsets stay as they are.
Rule 4: a partition has one owner through any number of changes. So a member counts as the owner of what it was last
        told, until it has joined again: not of what the target, or the rebalance under way, would give it.
Rule 5: a rebalance that a change has cut short, or asked for, is not forgotten. A consumer group made of a classic one
        that was rebalancing is in an epoch after its target's; a classic group that is to rebalance has no leader in
        the log, so that it does so when a coordinator loads it, too.
"""

from collections.abc import Collection

from ottla.core.coordination import CoordinatorRecord, Token
from ottla.core.groups.classic import join_refused, sync_refused
from ottla.core.groups.classic_group import ClassicGroup, State
from ottla.core.groups.classic_group import ClassicMember as MemberOfClassicGroup
from ottla.core.groups.consumer import records as written
from ottla.core.groups.consumer.assignors import Assignment
from ottla.core.groups.consumer.embedded import by_id, read_assignment, read_subscription, version_of, write_assignment
from ottla.core.groups.consumer.group import CONSUMER, ConsumerGroup
from ottla.core.groups.consumer.groups import Awaited, ConsumerGroups
from ottla.core.groups.consumer.member import ClassicMember, Member, owned
from ottla.core.groups.consumer.topics import TopicView
from ottla.core.groups.timers import Timer
from ottla.wire.codec import Malformed
from ottla.wire.errors import Error, Refused

Wake = list[tuple[Token, object]]


# Classic to consumer.


def upgrade(
    here: ConsumerGroups, classic: ClassicGroup, now_ms: int
) -> tuple[ConsumerGroup, list[CoordinatorRecord], Wake]:
    """The consumer group that a classic one becomes, the records of that, and answers to those who wait."""
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


def _upgraded(classic: ClassicGroup, member: MemberOfClassicGroup, topics: TopicView) -> tuple[Member, Assignment]:
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
        classic=ClassicMember(member.session_timeout_ms, tuple((name, bytes(data)) for name, data in member.protocols)),
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
    """Without those who leave only classic members are left, at least one, and not too many."""
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
    """The records that make a group classic; `joining` takes the place of the one who leaves."""
    gone = {member.member_id for member in leaving}
    members = [member for member_id, member in group.members.items() if member_id not in gone]
    in_log = dict.fromkeys(group.members)
    if joining is not None:
        members.append(joining)
        # What it replaces was removed, and it written, by the records before these.
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
    """Also what it has been told to give up, and has not said that it did."""
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
            MemberOfClassicGroup(
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
