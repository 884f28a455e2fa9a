"""ConsumerGroupHeartbeat, ConsumerGroupDescribe: groups of the consumer protocol (KIP-848)."""

from asyncio import Future
from collections.abc import Awaitable
from typing import Final

from ottla.broker.handlers.groups import client_host, describe_each
from ottla.broker.network.dispatch import Call
from ottla.config.groups import GROUP_COORDINATOR_REBALANCE_PROTOCOLS
from ottla.core.groups.consumer.description import not_described
from ottla.core.groups.consumer.heartbeat import refused
from ottla.core.groups.group import GroupClient
from ottla.core.metadata.features import GROUP_VERSION
from ottla.wire.api.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.wire.errors import Error, Refused

_CONSUMER: Final = "consumer"


def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    if not request.group_id.strip():
        return refused(Refused(Error.INVALID_REQUEST, "GroupId is empty"))
    if (why := _disabled(call)) is not None:
        return refused(why)
    client = GroupClient(call.client_id or "", client_host(call), call.version)
    return call.node.groups.submit(
        request.group_id,
        lambda shard, now_ms, _: shard.consumer.heartbeat(request, client, now_ms),
        refused=refused,
        holder=call.connection,
    )


async def consumer_group_describe(request: ConsumerGroupDescribeRequest, call: Call) -> ConsumerGroupDescribeResponse:
    operations = request.include_authorized_operations
    described = await describe_each(request.group_ids, _describe, call, operations=operations)
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=described)


async def _describe(group_id: str, call: Call) -> DescribedGroup:
    try:
        if (why := _disabled(call)) is not None:
            raise why
        if not group_id:
            raise Refused(Error.INVALID_GROUP_ID)
        found = call.node.groups.read(group_id, lambda shard, _: shard.consumer.describe(group_id))
        return await found if isinstance(found, Future) else found
    except Refused as refusal:
        return not_described(group_id, refusal)


def _disabled(call: Call) -> Refused | None:
    if _CONSUMER not in call.node.config[GROUP_COORDINATOR_REBALANCE_PROTOCOLS]:
        why = f"group.coordinator.rebalance.protocols of this broker does not name {_CONSUMER}"
    elif call.node.metadata.image.features.get(GROUP_VERSION, 0) < 1:
        why = f"the cluster's {GROUP_VERSION} is 0"
    else:
        return None
    return Refused(Error.UNSUPPORTED_VERSION, f"there are no groups of the consumer protocol here: {why}")
