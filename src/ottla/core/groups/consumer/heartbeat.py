"""ConsumerGroupHeartbeat: a member joins, stays, changes its subscription, or leaves.

Rule 1: a member joins with epoch 0, also after it was fenced. It leaves with -1, and with -2 if it is a static member
        that will come back. Any other epoch must be the member's epoch, or its previous one if the response with the
        new epoch was lost.
Rule 2: the response contains the assignment if the request is a full one, or if the assignment has changed.
"""

from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.consumer import records as written
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.groups import ConsumerGroups
from ottla.core.groups.consumer.leaving import check_instance, fence, leave_for_a_while
from ottla.core.groups.consumer.member import LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH, Member, OwnedPartitions
from ottla.core.groups.consumer.migration import Wake, upgrade
from ottla.core.groups.consumer.progress import GroupProgress, RegexChange
from ottla.core.groups.consumer.reconciliation import Reported
from ottla.core.groups.consumer.settings import ConsumerSettings
from ottla.core.groups.group import GroupClient
from ottla.core.runtime.decision import Decision
from ottla.core.runtime.shard import CoordinatorRecord
from ottla.wire.api.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.errors import Error, Refused

_JOIN_EPOCH = 0
_OWN_MEMBER_ID_SINCE = 1
"""From this version on, clients generate their own member ids."""


def heartbeat(
    here: ConsumerGroups, request: ConsumerGroupHeartbeatRequest, client: GroupClient, now_ms: int
) -> Decision[ConsumerGroupHeartbeatResponse]:
    _check_request(request, client.version, here.settings)
    if request.member_epoch in (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH):
        return _leave(here, request, now_ms)
    group, records, wake = _group_of(here, request, now_ms)
    check_room(here, group, request.member_id)
    member_id = request.member_id or here.new_uuid()
    reported = _reported(request)
    old = _member_of(group, request, member_id, reported, records)
    new = _asked(old, request, client)
    progress = GroupProgress(here, group, old, new, now_ms)
    named = progress.write_member()
    regex = progress.write_regex()
    progress.write_epoch(is_new=named or regex is RegexChange.RESOLVED)
    target = progress.write_target()
    new = progress.write_assignment(target, reported, subscription_changed=named or regex is not RegexChange.NONE)
    here.expect(group.group_id, new, now_ms)
    response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=Error.NONE,
        member_id=new.member_id,
        member_epoch=new.member_epoch,
        heartbeat_interval_ms=here.settings.heartbeat_interval_ms(group.group_id),
        assignment=_told(new.assigned) if _asks_for_all(request) or new.assigned != old.assigned else None,
    )
    return Decision(response, [*records, *progress.records] if records else progress.records, wake)


def refused(refusal: Refused) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=refusal.error,
        error_message=refusal.text,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )


# The request.


def _check_request(request: ConsumerGroupHeartbeatRequest, version: int, settings: ConsumerSettings) -> None:
    epoch = request.member_epoch
    is_named = version >= _OWN_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVE_EPOCH
    problem = _missing_name(request, is_named=is_named)
    if problem is None and epoch == _JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            problem = "who joins must give its RebalanceTimeoutMs"
        elif request.topic_partitions is None or request.topic_partitions:
            problem = "who joins owns nothing yet: TopicPartitions must be empty"
        elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            problem = "who joins must give SubscribedTopicNames or SubscribedTopicRegex"
    elif problem is None and epoch == LEAVE_FOR_A_WHILE_EPOCH and request.instance_id is None:
        problem = "only a static member leaves for a while: InstanceId is missing"
    elif problem is None and epoch < LEAVE_FOR_A_WHILE_EPOCH:
        problem = f"MemberEpoch {epoch} means nothing"
    if problem is not None:
        raise Refused(Error.INVALID_REQUEST, problem)
    if request.server_assignor is not None and request.server_assignor not in settings.assignors:
        raise Refused(
            Error.UNSUPPORTED_ASSIGNOR,
            f"no assignor {request.server_assignor!r} here; there are {', '.join(settings.assignors)}",
        )


def _missing_name(request: ConsumerGroupHeartbeatRequest, *, is_named: bool) -> str | None:
    """An error text if a name is empty that must not be. `is_named`: the member id must not be empty either."""
    instance_id, rack_id = request.instance_id, request.rack_id
    if not request.group_id.strip():
        return "GroupId is empty"
    if instance_id is not None and not instance_id.strip():
        return "InstanceId is empty"
    if rack_id is not None and not rack_id.strip():
        return "RackId is empty"
    return "MemberId is empty" if is_named and not request.member_id.strip() else None


def _asks_for_all(request: ConsumerGroupHeartbeatRequest) -> bool:
    if request.member_epoch == _JOIN_EPOCH:
        return True
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def _reported(request: ConsumerGroupHeartbeatRequest) -> Reported:
    if request.topic_partitions is None:
        return None
    return {one.topic_id: frozenset(one.partitions) for one in request.topic_partitions}


def _told(assigned: OwnedPartitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in sorted(assigned.items())
        ]
    )


def _asked(member: Member, request: ConsumerGroupHeartbeatRequest, client: GroupClient) -> Member:
    """The member with the changes of the request. Fields that the request leaves out keep their values."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    asked = Member(
        member.member_id,
        member.member_epoch,
        member.previous_member_epoch,
        member.state,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        client_id=client.name,
        client_host=client.host,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if regex is None else regex,
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        assigned=member.assigned,
        pending_revocation=member.pending_revocation,
    )
    return member if asked == member else asked


# The group and the member.


def _group_of(
    here: ConsumerGroups, request: ConsumerGroupHeartbeatRequest, now_ms: int
) -> tuple[ConsumerGroup, list[CoordinatorRecord], Wake]:
    """The group. If the member joins, it is created or converted to a consumer group. Also returns the records of a
    conversion and the responses that it wakes."""
    group_id, joins = request.group_id, request.member_epoch == _JOIN_EPOCH
    group = here.groups.get(group_id)
    if joins and group is None:
        return ConsumerGroup(group_id), [], []
    if joins and isinstance(group, ClassicGroup):
        if group.is_empty:
            return ConsumerGroup(group_id), list(group.tombstones()), []
        return upgrade(here, group, now_ms)
    return here.find(group_id), [], []


def check_room(here: ConsumerGroups, group: ConsumerGroup, member_id: str) -> None:
    limit = here.settings.members_max
    if member_id not in group.members and len(group.members) >= limit:
        raise Refused(
            Error.GROUP_MAX_SIZE_REACHED, f"group {group.group_id!r} has {limit} members, as many as may be in it"
        )


def _member_of(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    reported: Reported,
    records: list[CoordinatorRecord],
) -> Member:
    joins, instance_id = request.member_epoch == _JOIN_EPOCH, request.instance_id
    if instance_id is None:
        member = group.members.get(member_id) or Member(member_id) if joins else group.member(member_id)
        _check_epoch(member, request.member_epoch, reported)
        return member
    static = group.static_member(instance_id)
    if not joins:
        member = check_instance(static, member_id, instance_id)
        _check_epoch(member, request.member_epoch, reported)
        return member
    if static is None:
        return group.members.get(member_id) or Member(member_id)
    if static.classic is None and static.member_epoch != LEAVE_FOR_A_WHILE_EPOCH:
        raise Refused(
            Error.UNRELEASED_INSTANCE_ID,
            f"instance id {instance_id!r} belongs to member {static.member_id}, which has not left; "
            "it is free when that one leaves or its session is over",
        )
    return replaced(group, static, member_id, records)


def replaced(group: ConsumerGroup, old: Member, member_id: str, records: list[CoordinatorRecord]) -> Member:
    """A static member with a new id. It takes over the assignment and target of `old`."""
    new = old._replace(member_id=member_id, member_epoch=0, previous_member_epoch=0)
    records += written.no_member(group.group_id, old.member_id)
    records.append(written.member_record(group.group_id, new))
    records.append(written.target_record(group.group_id, member_id, group.target.get(old.member_id, {})))
    records.append(written.current_record(group.group_id, new))
    return new


def _check_epoch(member: Member, epoch: int, reported: Reported) -> None:
    known = member.member_epoch
    if epoch in (_JOIN_EPOCH, known):
        return
    if epoch < known and epoch == member.previous_member_epoch and _is_owned(reported, member.assigned):
        return  # The response with the new epoch was lost.
    raise Refused(
        Error.FENCED_MEMBER_EPOCH,
        f"member {member.member_id} comes with epoch {epoch}, its epoch is {known}: it must give up its partitions "
        "and join again",
    )


def _is_owned(reported: Reported, assigned: OwnedPartitions) -> bool:
    if reported is None:
        return False
    return all(topic_id in assigned and assigned[topic_id].keys() >= parts for topic_id, parts in reported.items())


def _leave(
    here: ConsumerGroups, request: ConsumerGroupHeartbeatRequest, now_ms: int
) -> Decision[ConsumerGroupHeartbeatResponse]:
    group = here.find(request.group_id)
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = check_instance(group.static_member(request.instance_id), request.member_id, request.instance_id)
    if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
        records = leave_for_a_while(group, member)
    else:
        records = fence(here, group, [member], now_ms)
    response = ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=Error.NONE,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        heartbeat_interval_ms=0,
    )
    return Decision(response, records)
