"""Read, set and delete committed offsets of groups from outside the group.

Rule 1: only offsets of a group without members may be set: a member would overwrite them. The coordinator refuses
        otherwise.
Rule 2: topics are named, so the versions with topic ids are not used: offsets of a deleted topic are found too.
Rule 3: a caller that needs offsets pending in an open transaction must name the partitions. A request for all of them
        silently omits a partition whose only offset is in an open transaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.client import Client
from ottla.client.coordinators import Ask, CoordinatorType, ask_coordinators
from ottla.client.core.names import GroupMetadata, TopicPartition
from ottla.rpc.addresses import Address
from ottla.rpc.errors import ClientError, refusal_of
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUP: Final = CoordinatorType.GROUP
NO_OFFSET: Final = -1
_WITH_NAMES: Final = 9  # Last version of OffsetCommit and of OffsetFetch that names topics.
_KNOWS_STABLE: Final = 7  # First version of OffsetFetch that can wait for open transactions.
_MANY_GROUPS: Final = 8  # First version of OffsetFetch whose groups are structures.

Offsets = dict[TopicPartition, "Committed"]
Outcomes = dict[TopicPartition, ClientError | None]


class Committed(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int  # -1: not sent.
    metadata: str


async def committed_offsets(client: Client, group_ids: Iterable[str]) -> dict[str, Offsets | ClientError]:
    """All committed offsets of groups; a group that does not exist has none."""

    async def ask(node: int, ids: list[str]) -> dict[str, Offsets | ClientError]:
        return {group_id: await _fetch(client, node, group_id, None) for group_id in ids}

    return await ask_coordinators(client, GROUP, group_ids, ask)


async def settled_offsets(
    client: Client, group_ids: Iterable[str], partitions: Iterable[TopicPartition]
) -> dict[str, Offsets | ClientError]:
    """The committed offsets of these partitions, once no open transaction may change them (rule 3)."""
    named: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        named.setdefault(partition.topic, []).append(partition.partition)

    async def ask(node: int, ids: list[str]) -> dict[str, Offsets | ClientError]:
        return {group_id: await _fetch(client, node, group_id, named) for group_id in ids}

    return await ask_coordinators(client, GROUP, group_ids, ask)


async def commit_offsets(
    client: Client, group_id: str, offsets: Mapping[TopicPartition, int], member: GroupMetadata | None = None
) -> Outcomes:
    """Commit offsets for a member, or, without one, set those of a group that has no members. A group that does not
    exist is created."""
    committer = member or GroupMetadata(group_id)

    async def ask(node: int, _: list[str]) -> dict[str, Outcomes | ClientError]:
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for partition, offset in sorted(offsets.items()):
            by_topic.setdefault(partition.topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition, committed_offset=offset, committed_metadata=""
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=committer.generation_id,
            member_id=committer.member_id,
            group_instance_id=committer.group_instance_id,
            topics=[
                OffsetCommitRequestTopic(name=topic, partitions=partitions) for topic, partitions in by_topic.items()
            ],
        )
        connection, answer = await client.call_node(node, request, at_most=_WITH_NAMES)
        assert isinstance(answer, OffsetCommitResponse)
        codes = {
            TopicPartition(topic.name, one.partition_index): one.error_code
            for topic in answer.topics
            for one in topic.partitions
        }
        return {group_id: _by_partition(codes, connection.address, group_id)}

    return await _changed(client, group_id, offsets, ask)


async def delete_offsets(client: Client, group_id: str, partitions: Iterable[TopicPartition]) -> Outcomes:
    """Delete committed offsets of topics that no member of the group consumes."""
    wanted = sorted(set(partitions))

    async def ask(node: int, _: list[str]) -> dict[str, Outcomes | ClientError]:
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for partition in wanted:
            topic = topics.setdefault(partition.topic, OffsetDeleteRequestTopic(name=partition.topic, partitions=[]))
            topic.partitions.append(OffsetDeleteRequestPartition(partition_index=partition.partition))
        request = OffsetDeleteRequest(group_id=group_id, topics=list(topics.values()))
        connection, answer = await client.call_node(node, request)
        assert isinstance(answer, OffsetDeleteResponse)
        refusal = refusal_of(answer.error_code, connection.address, GROUP.subject(group_id))
        if refusal is not None:
            return {group_id: refusal}
        codes = {
            TopicPartition(topic.name, one.partition_index): one.error_code
            for topic in answer.topics
            for one in topic.partitions
        }
        return {group_id: _by_partition(codes, connection.address, group_id)}

    return await _changed(client, group_id, wanted, ask)


async def _fetch(
    client: Client, node: int, group_id: str, settled: Mapping[str, list[int]] | None
) -> Offsets | ClientError:
    """All offsets, or those of the named partitions once no transaction is pending."""
    connection = await client.brokers.node(node)
    version = connection.version_for(OffsetFetchRequest, _WITH_NAMES)
    if version >= _MANY_GROUPS:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        if settled is not None:
            request.groups[0].topics = [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in settled.items()
            ]
    else:
        request = OffsetFetchRequest(group_id=group_id, topics=None)
        if settled is not None:
            request.topics = [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in settled.items()
            ]
    request.require_stable = settled is not None and version >= _KNOWS_STABLE
    answer = await connection.call(request, timeout_ms=client.request_timeout_ms, at_most=_WITH_NAMES)
    assert isinstance(answer, OffsetFetchResponse)
    code = answer.groups[0].error_code if answer.groups else answer.error_code
    topics: Sequence[OffsetFetchResponseTopics | OffsetFetchResponseTopic]
    topics = answer.groups[0].topics if answer.groups else answer.topics
    refusal = refusal_of(code, connection.address, GROUP.subject(group_id))
    if refusal is not None:
        return refusal
    found: Offsets = {}
    for topic in topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition_index)
            refusal = refusal_of(one.error_code, connection.address, f"{GROUP.subject(group_id)}, {partition}")
            if refusal is not None:
                return refusal
            if one.committed_offset != NO_OFFSET:
                found[partition] = Committed(one.committed_offset, one.committed_leader_epoch, one.metadata or "")
    return dict(sorted(found.items()))


def _by_partition(codes: Mapping[TopicPartition, int], broker: Address, group_id: str) -> Outcomes | ClientError:
    """A result for each partition; an error that a retry at the right broker may resolve applies to all of them."""
    outcomes = {
        partition: refusal_of(code, broker, f"{GROUP.subject(group_id)}, partition {partition}")
        for partition, code in codes.items()
    }
    again = next((one for one in outcomes.values() if one is not None and one.retriable), None)
    return again if again is not None and all(outcomes.values()) else {**outcomes}


async def _changed(client: Client, group_id: str, partitions: Iterable[TopicPartition], ask: Ask[Outcomes]) -> Outcomes:
    outcome = (await ask_coordinators(client, GROUP, [group_id], ask, changes=True))[group_id]
    return dict.fromkeys(partitions, outcome) if isinstance(outcome, ClientError) else outcome
