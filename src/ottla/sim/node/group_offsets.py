"""Committed offsets of groups: requested from the node, and compared with the history."""

from typing import Any

from ottla.sim.node.group_history import NOTHING
from ottla.sim.node.ledger import Key, name_of
from ottla.sim.node.members import NOT_READY, Member
from ottla.sim.node.scene import Line
from ottla.sim.played import Violation
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.errors import Error

INPUT = "input"
"""The topic that all groups read."""
COMMIT_AGAIN = (*NOT_READY, Error.KAFKA_STORAGE_ERROR)
_BY_NAME = 9
_NO_GENERATION = -1


class Hindered(Exception):
    """The operation cannot be completed as intended."""


async def commit_offsets(
    line: Line, group: str, member: Member | None, offsets: dict[Key, tuple[int, str]]
) -> dict[Key, Error]:
    """Commit offsets with metadata, for a member or without one. Raises ClientError."""
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=_NO_GENERATION if member is None else member.generation,
        member_id="" if member is None else member.member_id,
        group_instance_id=None if member is None else member.instance,
        topics=[
            OffsetCommitRequestTopic(
                name=INPUT,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for (_, index), (offset, metadata) in offsets.items()
                ],
            )
        ],
    )
    answer = await line.call(request, at_most=_BY_NAME)
    errors = {one.partition_index: Error(one.error_code) for one in answer.topics[0].partitions}
    return {key: errors[key[1]] for key in offsets}


async def ask_offsets(line: Line, group: str, keys: list[Key]) -> dict[Key, Any]:
    """The committed offsets, once nothing is pending. Raises ClientError, `Hindered`."""
    topics = [OffsetFetchRequestTopics(name=INPUT, partition_indexes=[key[1] for key in keys])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True)
    answer = (await line.call(request, at_most=_BY_NAME)).groups[0]
    error = Error(answer.error_code)
    if error is not Error.NONE:
        if error not in COMMIT_AGAIN:
            raise Violation("I11", f"the offsets of {group} cannot be fetched: {error.name}")
        raise Hindered(error.name)
    fetched = {(keys[0][0], one.partition_index): one for one in answer.topics[0].partitions}
    for key, one in fetched.items():
        if one.error_code == Error.UNSTABLE_OFFSET_COMMIT:
            raise Hindered("an offset is pending")
        if one.error_code:
            raise Violation("I11", f"the offset of {group} for {name_of(key)}: {Error(one.error_code).name}")
    return fetched


async def fetch_offsets(line: Line, group: str, keys: list[Key]) -> dict[Key, int]:
    """The positions to continue at; checks that they were committed."""
    scene, began = line.scene, line.scene.now
    fetched = await ask_offsets(line, group, keys)
    for key, one in fetched.items():
        scene.groups.fetched(group, key, one.committed_offset, one.metadata, began)
    return {key: 0 if one.committed_offset == NOTHING else one.committed_offset for key, one in fetched.items()}
