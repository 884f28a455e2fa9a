"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ListGroups, DescribeGroups, DeleteGroups."""

from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from ottla.broker.network.dispatch import Call
from ottla.config.groups import GROUP_MAX_SESSION_TIMEOUT_MS, GROUP_MIN_SESSION_TIMEOUT_MS
from ottla.core.groups.classic_responses import join_refused, sync_refused
from ottla.core.groups.group import GroupClient
from ottla.core.groups.shard import normal_state, normal_type
from ottla.core.runtime.shard import hash_cost
from ottla.wire.api import consumer_group_describe as consumer
from ottla.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from ottla.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.errors import Error, Refused
from ottla.wire.rows import Shared

D = TypeVar("D", DescribedGroup, consumer.DescribedGroup)

# The allowed operations as a bit field of Kafka's codes. Without an authoriser all operations are allowed.
GROUP_OPERATIONS: Final = sum(1 << code for code in (3, 6, 8, 10, 11))

_NULL_PROTOCOL_SINCE = 7
_REBALANCE_TIMEOUT_SINCE = 1
_PROTOCOL_MANDATORY_SINCE = 5
_MEMBERS_SINCE = 3
_MEMBERS_PER_DECISION = 500
_PROTOCOLS_MAX = 1_000
"""A member may name at most this many protocols, because each is compared with those of every other member."""


def join_group(request: JoinGroupRequest, call: Call) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    config = call.node.config
    if not request.group_id:
        return _joined(join_refused(Error.INVALID_GROUP_ID, request.member_id), call.version)
    allowed = range(config[GROUP_MIN_SESSION_TIMEOUT_MS], config[GROUP_MAX_SESSION_TIMEOUT_MS] + 1)
    if request.session_timeout_ms not in allowed:
        return _joined(join_refused(Error.INVALID_SESSION_TIMEOUT, request.member_id), call.version)
    if len(request.protocols) > _PROTOCOLS_MAX:
        return _joined(join_refused(Error.INCONSISTENT_GROUP_PROTOCOL, request.member_id), call.version)
    if call.version < _REBALANCE_TIMEOUT_SINCE:
        request.rebalance_timeout_ms = request.session_timeout_ms
    client = GroupClient(call.client_id or "", client_host(call), call.version)
    answer = call.node.groups.submit(
        request.group_id,
        lambda shard, now_ms, token: shard.join(request, client, now_ms, token),
        refused=lambda refusal: join_refused(refusal.error),
    )
    if call.version >= _NULL_PROTOCOL_SINCE:
        return answer
    return _joined_late(answer, call.version) if isinstance(answer, Future) else _joined(answer, call.version)


async def _joined_late(answer: "Future[JoinGroupResponse]", version: int) -> JoinGroupResponse:
    return _joined(await answer, version)


def _joined(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if version < _NULL_PROTOCOL_SINCE and response.protocol_name is None:
        response.protocol_name = ""
    return response


def client_host(call: Call) -> str:
    """The client's address in Java's format, as in Kafka."""
    host, _, _ = call.connection.peer.rpartition(":")
    return f"/{host}"


def sync_group(request: SyncGroupRequest, call: Call) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    if call.version >= _PROTOCOL_MANDATORY_SINCE and None in (request.protocol_type, request.protocol_name):
        return sync_refused(Error.INCONSISTENT_GROUP_PROTOCOL)
    if not request.group_id:
        return sync_refused(Error.INVALID_GROUP_ID)
    return call.node.groups.submit(
        request.group_id,
        lambda shard, now_ms, token: shard.sync(request, now_ms, token),
        refused=lambda refusal: sync_refused(refusal.error),
    )


def heartbeat(request: HeartbeatRequest, call: Call) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    if not request.group_id:
        return HeartbeatResponse(error_code=Error.INVALID_GROUP_ID)

    def refused(refusal: Refused) -> HeartbeatResponse:
        # While a group is being loaded, no member can expire: sessions start when it is loaded. So there is no error.
        loads = refusal.error is Error.COORDINATOR_LOAD_IN_PROGRESS
        return HeartbeatResponse(error_code=Error.NONE if loads else refusal.error)

    return call.node.groups.submit(
        request.group_id, lambda shard, now_ms, _: shard.heartbeat(request, now_ms), refused=refused
    )


async def leave_group(request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    if not request.group_id:
        return LeaveGroupResponse(error_code=Error.INVALID_GROUP_ID)
    if call.version < _MEMBERS_SINCE:
        request.members = [MemberIdentity(member_id=request.member_id)]
    response = await _leave(request, call)
    if call.version < _MEMBERS_SINCE:
        return LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)
    return response


async def _leave(request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    """Remove members from the group, a few at a time if there are very many."""
    told: list[MemberResponse] = []

    async def leave(members: list[MemberIdentity]) -> LeaveGroupResponse:
        few = LeaveGroupRequest(group_id=request.group_id, members=members)
        return await call.node.groups.decide(
            request.group_id,
            lambda shard, now_ms, _: shard.leave(few, now_ms),
            refused=lambda refusal: _nobody_left(few, refusal),
        )

    for first in range(0, max(len(request.members), 1), _MEMBERS_PER_DECISION):
        response = await leave(request.members[first : first + _MEMBERS_PER_DECISION])
        if response.error_code:
            return response
        told += response.members
        if call.budget.is_spent(_MEMBERS_PER_DECISION):
            await call.budget.give_way()
    return LeaveGroupResponse(error_code=Error.NONE, members=told)


def _nobody_left(request: LeaveGroupRequest, refusal: Refused) -> LeaveGroupResponse:
    if refusal.error is not Error.UNKNOWN_MEMBER_ID:
        return LeaveGroupResponse(error_code=refusal.error)
    return LeaveGroupResponse(
        error_code=Error.NONE,
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=Error.UNKNOWN_MEMBER_ID,
            )
            for member in request.members
        ],
    )


async def list_groups(request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    states = set(await call.budget.each(request.states_filter, normal_state))
    types = set(await call.budget.each(request.types_filter, normal_type))
    try:
        listed = await call.node.groups.read_each(
            lambda shard: shard.groups, lambda shard, few, _: shard.listed_of(few, states, types), call.budget
        )
    except Refused as refusal:
        return ListGroupsResponse(error_code=refusal.error, groups=[])
    return ListGroupsResponse(error_code=Error.NONE, groups=listed)


async def describe_groups(request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    described = await describe_each(request.groups, _describe, call, operations=request.include_authorized_operations)
    return DescribeGroupsResponse(groups=described)


async def describe_each(
    group_ids: Sequence[str], describe: Callable[[str, Call], Awaitable[D]], call: Call, *, operations: bool
) -> list[D]:
    """Describe groups. A group that is named again shares the description, because it may have very many members."""
    known: dict[str, D] = {}
    described = []
    for group_id in group_ids:
        cost = 1
        if group_id not in known:
            group = known[group_id] = await describe(group_id, call)
            cost = hash_cost(group_id) + len(group.members)
            group.members = Shared(group.members)
            if operations and group.error_code == Error.NONE:
                group.authorized_operations = GROUP_OPERATIONS
        described.append(known[group_id])
        if call.budget.is_spent(cost):
            await call.budget.give_way()
    return described


async def _describe(group_id: str, call: Call) -> DescribedGroup:
    try:
        found = call.node.groups.read(group_id, lambda shard, _: shard.describe(group_id, call.version))
        return await found if isinstance(found, Future) else found
    except Refused as refusal:
        return DescribedGroup(
            error_code=refusal.error, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
        )


async def delete_groups(request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        results += await _delete(group_id, call)
        if call.budget.is_spent(hash_cost(group_id)):
            await call.budget.give_way()
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


async def _delete(group_id: str, call: Call) -> list[DeletableGroupResult]:
    return await call.node.groups.decide(
        group_id,
        lambda shard, _now_ms, _: shard.delete([group_id]),
        refused=lambda refusal: [DeletableGroupResult(group_id=group_id, error_code=refusal.error)],
    )
