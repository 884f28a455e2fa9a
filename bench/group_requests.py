"""Frames about groups and their offsets, and waiting for a coordinator."""

import time
from collections.abc import Sequence

from bench.raw_client import RawConnection, frame
from ottla.wire.api import ApiKey
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.errors import Error
from ottla.wire.frame import decode_response

OFFSET = 42
"""The offset committed everywhere."""
GROUP_KEY, TRANSACTION_KEY = 0, 1
_COMMIT_VERSION = 8
_FETCH_VERSION = 8
_FIND_VERSION = 4
_READY_S_MAX = 60.0
_ASK_AGAIN_S = 0.02


def commit_frame(group: str, topic: str, partitions: int) -> bytes:
    """A commit without a member: the group has only offsets."""
    offsets = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=OFFSET, committed_metadata="")
        for index in range(partitions)
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=offsets)]
    return frame(OffsetCommitRequest(group_id=group, member_id="", topics=topics), _COMMIT_VERSION)


def offsets_frame(groups: Sequence[str], topic: str, partitions: int) -> bytes:
    asked = [OffsetFetchRequestTopics(name=topic, partition_indexes=list(range(partitions)))]
    of_groups = [OffsetFetchRequestGroup(group_id=group, topics=asked) for group in groups]
    return frame(OffsetFetchRequest(groups=of_groups, require_stable=False), _FETCH_VERSION)


def find_coordinator(connection: RawConnection, key: str, key_type: int = GROUP_KEY) -> None:
    """As a client does; the first time this creates the internal topic."""
    request = frame(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), _FIND_VERSION)
    deadline = time.monotonic() + _READY_S_MAX
    while time.monotonic() < deadline:
        body = decode_response(ApiKey.FIND_COORDINATOR, _FIND_VERSION, connection.ask(request))[1]
        if not body.coordinators[0].error_code:
            return
        time.sleep(_ASK_AGAIN_S)
    raise RuntimeError(f"nobody coordinates {key}")


def until_committed(connection: RawConnection, commit: bytes) -> bytes:
    """A new coordinator loads its log first. Returns the response without an error."""
    deadline = time.monotonic() + _READY_S_MAX
    while time.monotonic() < deadline:
        answer = connection.ask(commit)
        topics = decode_response(ApiKey.OFFSET_COMMIT, _COMMIT_VERSION, answer)[1].topics
        errors = {one.error_code for topic in topics for one in topic.partitions} - {Error.NONE}
        if not errors:
            return answer
        time.sleep(_ASK_AGAIN_S)
    raise RuntimeError(f"the offsets were not committed: {', '.join(Error(error).name for error in errors)}")


def until_known(connection: RawConnection, fetch: bytes) -> None:
    """Repeat until every group is loaded; its offsets must be there then."""
    deadline = time.monotonic() + _READY_S_MAX
    while time.monotonic() < deadline:
        groups = decode_response(ApiKey.OFFSET_FETCH, _FETCH_VERSION, connection.ask(fetch))[1].groups
        if not any(group.error_code for group in groups):
            offsets = {one.committed_offset for group in groups for one in group.topics[0].partitions}
            if offsets == {OFFSET}:
                return
        time.sleep(_ASK_AGAIN_S)
    raise RuntimeError("the offsets that were committed before the start are not known after it")
