"""Members of a consumer group that use the classic protocol, while the group migrates between the two protocols.

Rule 1: the generation of a classic member is its member epoch. Its join is answered at once: the coordinator assigns
        the partitions, so no member waits for others, and there is no leader.
Rule 2: the join request lists the partitions that the member owns. The sync response lists those that it should own.
        The member must sync within its rebalance time-out after the join. It has the same time to join again after
        REBALANCE_IN_PROGRESS.
Rule 3: a member gets REBALANCE_IN_PROGRESS when there is a new target, when it must give up partitions, and when the
        partitions that it waited for have become free.
"""

from ottla.core.groups.classic_responses import join_refused
from ottla.core.groups.consumer.embedded import by_id, read_subscription, version_of, write_assignment
from ottla.core.groups.consumer.group import CONSUMER, ConsumerGroup
from ottla.core.groups.consumer.groups import Awaited, ConsumerGroups
from ottla.core.groups.consumer.heartbeat import check_room, replaced
from ottla.core.groups.consumer.leaving import check_instance, fence
from ottla.core.groups.consumer.member import ClassicMemberMetadata, Member, MemberState
from ottla.core.groups.consumer.migration import downgrade, may_downgrade
from ottla.core.groups.consumer.progress import GroupProgress, RegexChange
from ottla.core.groups.consumer.target import TargetAssignment
from ottla.core.groups.group import GroupClient
from ottla.core.groups.timers import Timer
from ottla.core.runtime.decision import Decision
from ottla.core.runtime.shard import CoordinatorRecord
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.codec import Malformed
from ottla.wire.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.errors import Error, Refused

_MEMBER_ID_REQUIRED_SINCE = 4


# JoinGroup.


def join(
    here: ConsumerGroups, group: ConsumerGroup, request: JoinGroupRequest, client: GroupClient, now_ms: int
) -> Decision[JoinGroupResponse]:
    """Handle the JoinGroup of a classic member to a consumer group that has members."""
    is_unknown = not request.member_id
    member_id = request.member_id or here.new_uuid()
    _check_join(here, group, request, member_id)
    if is_unknown and request.group_instance_id is None and client.version >= _MEMBER_ID_REQUIRED_SINCE:
        return Decision(join_refused(Error.MEMBER_ID_REQUIRED, member_id))
    records: list[CoordinatorRecord] = []
    static = group.static_member(request.group_instance_id)
    old = _joining(group, request, member_id, static, records)
    subscription = _subscription(request)
    new = _asked(old, request, subscription, client)
    progress = GroupProgress(here, group, old, new, now_ms)
    named = progress.write_member()
    is_new = progress.write_regex() is not RegexChange.NONE or named
    progress.write_epoch(is_new=is_new)
    reported = by_id(subscription.owned_partitions, here.topics)
    here.deadlines.cancel(Timer(Awaited.JOIN, group.group_id, new.member_id))
    if static is not None and static.classic is None and may_downgrade(here, group, [static], joining=1):
        others = (member for member in group.members.values() if member is not static)
        rebalances = group.assignment_epoch < progress.epoch or not all(
            member.is_reconciled_to(group.assignment_epoch) for member in others
        )
        if not rebalances:
            target = TargetAssignment(group.assignment_epoch, group.target_of(new))
            new = progress.write_assignment(target, reported, subscription_changed=is_new)
        last = downgrade(here, group, [static], now_ms, joining=new, rebalances=rebalances)
        return Decision(_joined(new), [*records, *progress.records, *last])
    new = progress.write_assignment(progress.write_target(), reported, subscription_changed=is_new)
    here.expect(group.group_id, new, now_ms)
    here.deadlines.set(Timer(Awaited.SYNC, group.group_id, new.member_id), now_ms + request.rebalance_timeout_ms)
    return Decision(_joined(new), [*records, *progress.records])


def _check_join(here: ConsumerGroups, group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> None:
    if not here.settings.may_mix:
        raise Refused(
            Error.INCONSISTENT_GROUP_PROTOCOL,
            f"group {group.group_id!r} is of the consumer protocol; group.consumer.migration.policy is DISABLED",
        )
    check_room(here, group, member_id)
    if not group.shares_classic_protocol(request.protocol_type, [protocol.name for protocol in request.protocols]):
        raise Refused(
            Error.INCONSISTENT_GROUP_PROTOCOL,
            f"member {member_id} has no protocol of type {CONSUMER!r} that all classic members of "
            f"group {group.group_id!r} have",
        )


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(bytes(request.protocols[0].metadata))
    except Malformed as error:
        raise Refused(Error.UNKNOWN_SERVER_ERROR, f"the subscription cannot be read: {error}") from error


def _joining(
    group: ConsumerGroup,
    request: JoinGroupRequest,
    member_id: str,
    static: Member | None,
    records: list[CoordinatorRecord],
) -> Member:
    instance_id = request.group_instance_id
    if instance_id is None:
        return group.members.get(member_id) or Member(member_id)
    if request.member_id:
        return check_instance(static, member_id, instance_id)
    return Member(member_id) if static is None else replaced(group, static, member_id, records)


def _asked(
    member: Member, request: JoinGroupRequest, subscription: ConsumerProtocolSubscription, client: GroupClient
) -> Member:
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=client.name,
        client_host=client.host,
        classic=ClassicMemberMetadata(
            request.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        ),
    )


def _joined(member: Member) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=Error.NONE,
        generation_id=member.member_epoch,
        protocol_type=CONSUMER,
        protocol_name=_protocol_of(member) or None,
        leader="",
        member_id=member.member_id,
        members=[],
    )


def _protocol_of(member: Member) -> str:
    assert member.classic is not None, "a classic member"
    return member.classic.protocols[0][0]


# SyncGroup.


def sync(
    here: ConsumerGroups, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int
) -> Decision[SyncGroupResponse]:
    member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    protocol = _protocol_of(member)
    if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, protocol):
        raise Refused(
            Error.INCONSISTENT_GROUP_PROTOCOL,
            f"the group is of protocol {CONSUMER}, {protocol}, not {request.protocol_type}, {request.protocol_name}",
        )
    if group.assignment_epoch > member.member_epoch and member.state != MemberState.UNREVOKED_PARTITIONS:
        here.expect_join(group.group_id, member, now_ms)
        raise Refused(
            Error.REBALANCE_IN_PROGRESS, f"member {member.member_id} must join again: there is a new assignment"
        )
    here.deadlines.cancel(Timer(Awaited.SYNC, group.group_id, member.member_id))
    here.expect(group.group_id, member, now_ms)
    assigned = {topic_id: frozenset(epochs) for topic_id, epochs in member.assigned.items()}
    return Decision(
        SyncGroupResponse(
            error_code=Error.NONE,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(assigned, version_of(classic.protocols[0][1]), here.topics),
        )
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[Member, ClassicMemberMetadata]:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = check_instance(group.static_member(instance_id), member_id, instance_id)
    if member.classic is None:
        raise Refused(Error.UNKNOWN_MEMBER_ID, f"member {member_id} speaks the consumer protocol, not the classic one")
    if generation_id != member.member_epoch:
        raise Refused(
            Error.ILLEGAL_GENERATION, f"member {member_id} is in epoch {member.member_epoch}, not {generation_id}"
        )
    return member, member.classic


# Heartbeat.


def heartbeat(
    here: ConsumerGroups, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int
) -> Decision[HeartbeatResponse]:
    member, _ = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    here.expect(group.group_id, member, now_ms)
    must_join = (
        member.member_epoch < group.assignment_epoch
        or member.state == MemberState.UNREVOKED_PARTITIONS
        or (member.state == MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
    )
    if must_join:
        here.expect_join(group.group_id, member, now_ms)
    return Decision(HeartbeatResponse(error_code=Error.REBALANCE_IN_PROGRESS if must_join else Error.NONE))


# LeaveGroup.


def leave(
    here: ConsumerGroups, group: ConsumerGroup, request: LeaveGroupRequest, now_ms: int
) -> Decision[LeaveGroupResponse]:
    responses: list[MemberResponse] = []
    leaving: dict[str, Member] = {}
    for identity in request.members:
        error = Error.NONE
        try:
            member = _leaving(group, identity)
            leaving[member.member_id] = member
        except Refused as refusal:
            error = refusal.error
        responses.append(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)
        )
    records = fence(here, group, list(leaving.values()), now_ms)
    return Decision(LeaveGroupResponse(error_code=Error.NONE, members=responses), records)


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    instance_id = identity.group_instance_id
    if instance_id is None:
        return group.member(identity.member_id)
    static = group.static_member(instance_id)
    # An administrator removes a member by its instance id only, without a member id.
    return check_instance(static, identity.member_id or (static.member_id if static else ""), instance_id)
