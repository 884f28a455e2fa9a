"""List, describe and delete groups.

Rule 1: consumer groups (KIP-848) and classic groups are described by two APIs; the caller need not know which applies.
        The newer one is asked first: for a classic group it returns GROUP_ID_NOT_FOUND.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ottla.client.client import Client
from ottla.client.coordinators import CoordinatorType, ask_coordinators, ask_every_broker
from ottla.client.core.names import TopicPartition
from ottla.rpc.errors import ClientError, Declined, Unsupported, error_of, refusal_of
from ottla.wire.api import consumer_group_describe as new_protocol
from ottla.wire.api import describe_groups as classic_protocol
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.codec import Malformed, decode_from
from ottla.wire.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.errors import Error
from ottla.wire.schema import message_of

GROUP: Final = CoordinatorType.GROUP
CONSUMER_PROTOCOL: Final = "consumer"  # The protocol type of groups whose members consume topics.
FILTERS_STATES: Final = 4  # First version of ListGroups with filters.
FILTERS_TYPES: Final = 5
DEAD: Final = "Dead"  # The state that old brokers return for a group that does not exist.
NOT_OF_THE_NEW_PROTOCOL: Final = (Error.GROUP_ID_NOT_FOUND, Error.UNSUPPORTED_VERSION)


class GroupListing(NamedTuple):
    group_id: str
    group_type: str  # Empty from a broker too old to send it, as is the state.
    state: str
    protocol_type: str
    coordinator: int


class GroupMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: list[TopicPartition]
    target: list[TopicPartition] | None = None  # The assignment once the group is balanced; None in classic groups.
    epoch: int | None = None


class GroupDescription(NamedTuple):
    group_id: str
    group_type: str
    state: str
    coordinator: int
    protocol_type: str
    assignor: str
    members: list[GroupMember]
    epoch: int | None = None  # Of consumer groups (KIP-848).
    assignment_epoch: int | None = None


async def list_groups(
    client: Client, *, states: Sequence[str] = (), types: Sequence[str] = ()
) -> dict[int, list[GroupListing] | ClientError]:
    """The groups that each broker coordinates; without filters, all."""

    async def ask(node: int) -> list[GroupListing]:
        connection = await client.brokers.node(node)
        version = connection.version_for(ListGroupsRequest)
        if (states and version < FILTERS_STATES) or (types and version < FILTERS_TYPES):
            raise Unsupported(connection.address, "it is too old to list groups by state or type")
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answer = await connection.call(request, timeout_ms=client.request_timeout_ms)
        assert isinstance(answer, ListGroupsResponse)
        refusal = refusal_of(answer.error_code, connection.address, "list of groups")
        if refusal is not None:
            raise refusal
        return [
            GroupListing(one.group_id, one.group_type.lower(), one.group_state, one.protocol_type, node)
            for one in answer.groups
        ]

    return await ask_every_broker(client, ask)


async def describe_groups(client: Client, group_ids: Iterable[str]) -> dict[str, GroupDescription | ClientError]:
    wanted = list(dict.fromkeys(group_ids))
    described = await ask_coordinators(client, GROUP, wanted, lambda node, ids: _describe_new(client, node, ids))
    others = [group_id for group_id, outcome in described.items() if _may_be_classic(outcome)]
    if others:
        classic = await ask_coordinators(client, GROUP, others, lambda node, ids: _describe_classic(client, node, ids))
        described |= classic
    return described


async def delete_groups(client: Client, group_ids: Iterable[str]) -> dict[str, ClientError | None]:
    """Delete groups without members, with their committed offsets."""

    async def ask(node: int, ids: list[str]) -> dict[str, ClientError | None]:
        connection, answer = await client.call_node(node, DeleteGroupsRequest(groups_names=ids))
        assert isinstance(answer, DeleteGroupsResponse)
        outcomes: dict[str, ClientError | None] = {}
        for result in answer.results:
            subject = GROUP.subject(result.group_id)
            outcomes[result.group_id] = refusal_of(result.error_code, connection.address, subject)
        return outcomes

    return await ask_coordinators(client, GROUP, group_ids, ask, changes=True)


def _may_be_classic(outcome: object) -> bool:
    declined = isinstance(outcome, Declined) and outcome.error in NOT_OF_THE_NEW_PROTOCOL
    return declined or isinstance(outcome, Unsupported)


async def _describe_new(client: Client, node: int, ids: list[str]) -> dict[str, GroupDescription | ClientError]:
    request = ConsumerGroupDescribeRequest(group_ids=ids, include_authorized_operations=False)
    connection, answer = await client.call_node(node, request)
    assert isinstance(answer, ConsumerGroupDescribeResponse)
    outcomes: dict[str, GroupDescription | ClientError] = {}
    for group in answer.groups:
        subject = GROUP.subject(group.group_id)
        refusal = refusal_of(group.error_code, connection.address, subject, group.error_message)
        if refusal is not None:
            outcomes[group.group_id] = refusal
            continue
        outcomes[group.group_id] = GroupDescription(
            group.group_id,
            "consumer",
            group.group_state,
            node,
            CONSUMER_PROTOCOL,
            group.assignor_name,
            sorted(_new_member(member) for member in group.members),
            group.group_epoch,
            group.assignment_epoch,
        )
    return outcomes


def _new_member(member: new_protocol.Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        _host(member.client_host),
        _partitions((one.topic_name, one.partitions) for one in member.assignment.topic_partitions),
        _partitions((one.topic_name, one.partitions) for one in member.target_assignment.topic_partitions),
        member.member_epoch,
    )


async def _describe_classic(client: Client, node: int, ids: list[str]) -> dict[str, GroupDescription | ClientError]:
    connection, answer = await client.call_node(node, DescribeGroupsRequest(groups=ids))
    assert isinstance(answer, DescribeGroupsResponse)
    outcomes: dict[str, GroupDescription | ClientError] = {}
    for group in answer.groups:
        error = error_of(group.error_code)
        if error is Error.NONE and group.group_state == DEAD:
            error = Error.GROUP_ID_NOT_FOUND
        if error is not Error.NONE:
            # The broker's text would mention classic groups only, and this group is of neither kind.
            text = None if error is Error.GROUP_ID_NOT_FOUND else group.error_message
            subject = GROUP.subject(group.group_id)
            outcomes[group.group_id] = Declined(error, broker=connection.address, subject=subject, text=text)
            continue
        consumes = group.protocol_type == CONSUMER_PROTOCOL
        outcomes[group.group_id] = GroupDescription(
            group.group_id,
            "classic",
            group.group_state,
            node,
            group.protocol_type,
            group.protocol_data,
            sorted(_classic_member(member, consumes=consumes) for member in group.members),
        )
    return outcomes


def _classic_member(member: classic_protocol.DescribedGroupMember, *, consumes: bool) -> GroupMember:
    assignment = _assigned(bytes(member.member_assignment)) if consumes else []
    return GroupMember(
        member.member_id, member.group_instance_id, member.client_id, _host(member.client_host), assignment
    )


def _assigned(data: bytes) -> list[TopicPartition]:
    """The partitions that the group's leader assigned; none if the bytes are invalid: the broker does not check
    them."""
    if len(data) < 2:
        return []
    newest = message_of(ConsumerProtocolAssignment).versions[-1]
    version = min(int.from_bytes(data[:2], "big", signed=True), newest)  # Later versions only add fields at the end.
    try:
        assignment, _ = decode_from(ConsumerProtocolAssignment, max(version, 0), data, 2)
    except Malformed:
        return []
    return _partitions((one.topic, one.partitions) for one in assignment.assigned_partitions)


def _partitions(topics: Iterable[tuple[str, list[int]]]) -> list[TopicPartition]:
    return sorted(TopicPartition(topic, partition) for topic, partitions in topics for partition in partitions)


def _host(text: str) -> str:
    return text.removeprefix("/")  # Java puts a slash before an address without a host name.
