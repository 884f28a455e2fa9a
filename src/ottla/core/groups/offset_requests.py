"""OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit, and the expiry of old offsets.

Rule 1: the first commit that claims no membership creates the group if it does not exist. Such a group has only
        offsets.
Rule 2: an error of one partition fails only that partition. An error of the member fails the whole commit.
Rule 3: a request for stable offsets is answered UNSTABLE_OFFSET_COMMIT while a transaction is open on one of them:
        consumers of exactly-once pipelines would otherwise read records twice.
Rule 4: an offset expires `offsets.retention.minutes` after the group became empty. If the group never had members, or
        no longer reads the topic, the time counts from the commit. A group is deleted with its last offset.
"""

from collections.abc import Mapping
from functools import lru_cache

from ottla.core.groups.classic import ClassicProtocol
from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.group import Committer, Group, PartitionCheck
from ottla.core.groups.offsets import NO_EXPIRY, CommittedOffset, OffsetCommits, Offsets, offset_record, tombstone
from ottla.core.groups.settings import GroupSettings
from ottla.core.runtime.decision import Decision
from ottla.core.runtime.shard import CoordinatorRecord
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.errors import Error, Refused
from ottla.wire.rows import ColumnarArray, column
from ottla.wire.types import NO_UUID

_NO_OFFSET = -1
_GROUP_ID_NOT_FOUND_SINCE = 9
_NO_RETENTION = -1
_NO_LEADER_EPOCH = -1
_COMMITS_REMEMBERED = 1_000  # Cached because consumers commit the same partitions again and again.


class OffsetRequests:
    def __init__(
        self, groups: Mapping[str, Group], offsets: Offsets, classic: ClassicProtocol, settings: GroupSettings
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._classic = classic
        self._settings = settings

    # OffsetCommit.

    def commit(self, request: OffsetCommitRequest, version: int, now_ms: int) -> Decision[OffsetCommitResponse]:
        """Commit offsets. The topics of `request` have both name and id, whichever of the two the client sent."""
        check = self._check_commit(request, version, now_ms)
        is_bare = request.retention_time_ms == _NO_RETENTION and not any(
            topic.topic_id == NO_UUID or any(column(topic.partitions, "committed_metadata")) for topic in request.topics
        )
        decide = self._commit_bare if is_bare else self._commit_one_by_one
        return decide(request, check, now_ms)

    def _commit_bare(
        self, request: OffsetCommitRequest, check: PartitionCheck | None, now_ms: int
    ) -> Decision[OffsetCommitResponse]:
        """Commit offsets without metadata or retention time, for topics with known ids. This is the usual commit."""
        commits = OffsetCommits(request.group_id, now_ms)
        topics = []
        for topic in request.topics:
            name, topic_id, partitions = topic.name, topic.topic_id, topic.partitions
            indexes = column(partitions, "partition_index")
            if check is not None:
                for index in indexes:
                    check(name, topic_id, index)
            offsets = column(partitions, "committed_offset")
            leader_epochs = column(partitions, "committed_leader_epoch")
            if min(leader_epochs, default=0) < _NO_LEADER_EPOCH:
                leader_epochs = [max(epoch, _NO_LEADER_EPOCH) for epoch in leader_epochs]
            commits.add(name, topic_id, indexes, offsets, leader_epochs)
            told = _all_committed(tuple(indexes))
            topics.append(OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=told))
        return Decision(OffsetCommitResponse(topics=topics), commits)

    def _commit_one_by_one(
        self, request: OffsetCommitRequest, check: PartitionCheck | None, now_ms: int
    ) -> Decision[OffsetCommitResponse]:
        group_id = request.group_id
        expire_ms = NO_EXPIRY if request.retention_time_ms == _NO_RETENTION else now_ms + request.retention_time_ms
        limit = self._settings.offset_metadata_bytes_max
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            name, topic_id = topic.name, topic.topic_id
            partitions = []
            for one in topic.partitions:
                index, metadata, error = one.partition_index, one.committed_metadata, Error.NONE
                if metadata and _java_length(metadata) > limit:
                    error = Error.OFFSET_METADATA_TOO_LARGE
                else:
                    if check is not None:
                        check(name, topic_id, index)
                    records.append(
                        offset_record(
                            group_id,
                            name,
                            index,
                            offset=one.committed_offset,
                            leader_epoch=one.committed_leader_epoch,
                            metadata=metadata,
                            now_ms=now_ms,
                            expire_ms=expire_ms,
                            topic_id=topic_id,
                        )
                    )
                partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=error))
            topics.append(OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions))
        return Decision(OffsetCommitResponse(topics=topics), records)

    def _check_commit(self, request: OffsetCommitRequest, version: int, now_ms: int) -> PartitionCheck | None:
        generation_id = request.generation_id_or_member_epoch
        group = self._groups.get(request.group_id)
        if group is None:
            if generation_id < 0:
                return None
            error = Error.GROUP_ID_NOT_FOUND if version >= _GROUP_ID_NOT_FOUND_SINCE else Error.ILLEGAL_GENERATION
            raise Refused(error, f"there is no group {request.group_id!r}")
        check = group.check_commit(Committer(request.member_id, request.group_instance_id, generation_id, version))
        if isinstance(group, ClassicGroup):
            self._classic.committed(group, request.member_id, now_ms)
        return check

    # TxnOffsetCommit.

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, topic_ids: Mapping[str, bytes], version: int, now_ms: int
    ) -> Decision[TxnOffsetCommitResponse]:
        """Commit offsets in a transaction. `topic_ids` has the ids of the topics that exist, by name."""
        check = self._check_transactional_commit(request, version)
        limit = self._settings.offset_metadata_bytes_max
        records: list[CoordinatorRecord] = []
        topics = []
        for topic in request.topics:
            topic_id = topic_ids.get(topic.name, NO_UUID)
            if check is not None and topic_id == NO_UUID:
                raise Refused(Error.ILLEGAL_GENERATION, f"no member can hold partitions of {topic.name!r}: it is gone")
            partitions = []
            for one in topic.partitions:
                index, error = one.partition_index, Error.NONE
                if one.committed_metadata and _java_length(one.committed_metadata) > limit:
                    error = Error.OFFSET_METADATA_TOO_LARGE
                else:
                    if check is not None:
                        _as_generation(check, topic.name, topic_id, index)
                    records.append(
                        offset_record(
                            request.group_id,
                            topic.name,
                            index,
                            offset=one.committed_offset,
                            leader_epoch=one.committed_leader_epoch,
                            metadata=one.committed_metadata,
                            now_ms=now_ms,
                        )
                    )
                partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=error))
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
        return Decision(TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics), records)

    def _check_transactional_commit(self, request: TxnOffsetCommitRequest, version: int) -> PartitionCheck | None:
        group = self._groups.get(request.group_id)
        if group is None:
            if request.generation_id < 0:
                return None
            raise Refused(Error.ILLEGAL_GENERATION, f"there is no group {request.group_id!r}")
        committer = Committer(
            request.member_id, request.group_instance_id, request.generation_id, version, is_transactional=True
        )
        try:
            return group.check_commit(committer)
        except Refused as refusal:
            raise _in_generations(refusal) from None

    # OffsetFetch.

    def asked(self, request: OffsetFetchRequestGroup) -> list[OffsetFetchRequestTopics]:
        """The requested partitions: those listed, or all that have an offset if `topics` is None."""
        group = self._groups.get(request.group_id)
        if group is not None:
            group.check_fetch(request.member_id, request.member_epoch)
        if request.topics is not None:
            return request.topics
        topics: dict[str, list[int]] = {}
        for name, index in self._offsets.of(request.group_id) if group is not None else ():
            topics.setdefault(name, []).append(index)
        return [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in topics.items()]

    def fetch(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """Fetch committed offsets. The topics of `request` have their names, even if the client sent ids."""
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    self._partition(request.group_id, topic.name, index, topic.topic_id, require_stable)
                    for index in topic.partition_indexes
                ],
            )
            for topic in self.asked(request)
        ]
        return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)

    def _partition(
        self, group_id: str, topic: str, index: int, topic_id: bytes, require_stable: bool
    ) -> OffsetFetchResponsePartitions:
        if require_stable and self._offsets.is_pending(group_id, topic, index):
            return no_offset(index, Error.UNSTABLE_OFFSET_COMMIT)
        value = self._offsets.get(group_id, topic, index)
        if value is None or (NO_UUID not in (value.topic_id, topic_id) and value.topic_id != topic_id):
            return no_offset(index)
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            error_code=Error.NONE,
        )

    # OffsetDelete.

    def delete(self, request: OffsetDeleteRequest) -> Decision[OffsetDeleteResponse]:
        group = self._groups.get(request.group_id)
        if group is None:
            raise Refused(Error.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id!r}")
        group.check_offset_deletion()
        records = []
        topics = []
        for topic in request.topics:
            is_read = group.is_subscribed_to(topic.name)
            error = Error.GROUP_SUBSCRIBED_TO_TOPIC if is_read else Error.NONE
            indexes = [one.partition_index for one in topic.partitions]
            topics.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(partition_index=index, error_code=error) for index in indexes
                    ],
                )
            )
            records += [
                tombstone(request.group_id, (topic.name, index))
                for index in indexes
                if not is_read
                and (
                    self._offsets.get(request.group_id, topic.name, index) is not None
                    or self._offsets.is_pending(request.group_id, topic.name, index)
                )
            ]
        return Decision(OffsetDeleteResponse(error_code=Error.NONE, throttle_time_ms=0, topics=topics), records)

    # Expiry.

    def expired(self, now_ms: int) -> list[CoordinatorRecord]:
        """Tombstones of the offsets that have expired, and of the groups that have no offset left."""
        records: list[CoordinatorRecord] = []
        for group_id, group in self._groups.items():
            due = [
                place
                for place, committed in self._offsets.of(group_id).items()
                if self._is_expired(group, place[0], place[1], committed, now_ms)
            ]
            records += [tombstone(group_id, place) for place in due]
            left = len(self._offsets.of(group_id)) - len(due)
            if not left and group.is_empty and not self._offsets.has_pending(group_id):
                records += group.tombstones()
        return records

    def _is_expired(self, group: Group, topic: str, index: int, value: CommittedOffset, now_ms: int) -> bool:
        begins_ms = group.retention_begins(value.commit_timestamp)
        if begins_ms is None or group.is_subscribed_to(topic):
            return False
        if self._offsets.is_pending(group.group_id, topic, index):
            return False
        if value.expire_timestamp != NO_EXPIRY:
            return now_ms >= value.expire_timestamp
        return now_ms - begins_ms >= self._settings.offsets_retention_ms


@lru_cache(maxsize=_COMMITS_REMEMBERED)
def _all_committed(indexes: tuple[int, ...]) -> ColumnarArray[OffsetCommitResponsePartition]:
    """The response without errors for these partitions. Responses share it, and it is encoded once."""
    columns = {"partition_index": indexes, "error_code": (Error.NONE,) * len(indexes)}
    return ColumnarArray(OffsetCommitResponsePartition, len(indexes), columns)


def no_offset(index: int, error: Error = Error.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=error
    )


def _java_length(text: str) -> int:
    """The length as Java counts it, and so Kafka: a character beyond the first 65,536 counts as two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _as_generation(check: PartitionCheck, topic: str, topic_id: bytes, index: int) -> None:
    try:
        check(topic, topic_id, index)
    except Refused as refusal:
        raise _in_generations(refusal) from None


def _in_generations(refusal: Refused) -> Refused:
    """Replace STALE_MEMBER_EPOCH by ILLEGAL_GENERATION, because producers know generations but not epochs."""
    stale = refusal.error is Error.STALE_MEMBER_EPOCH
    return Refused(Error.ILLEGAL_GENERATION, refusal.text) if stale else refusal
