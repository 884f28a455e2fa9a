"""OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit.

Rule 1: a topic that does not exist, or a partition of it, fails by itself and never reaches the coordinator.
Rule 2: newer clients name topics by id. The coordinator goes by names, and keeps the id beside the offset.
"""

from asyncio import Future
from collections.abc import Awaitable, Sequence

from ottla.broker.dispatch import Call
from ottla.broker.transactions import told_to_writer
from ottla.core.coordination import Decision, ProducerStamp, Token
from ottla.core.groups.offset_requests import no_offset
from ottla.core.groups.shard import GroupShard
from ottla.core.metadata.image import Image
from ottla.core.metadata.names import CONSUMER_OFFSETS
from ottla.core.transactions.transaction import ProducerIdentity
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.errors import Error, Refused
from ottla.wire.rows import column

_IDS_SINCE = 10
_GROUPS_SINCE = 8
_GROUP_ERROR_SINCE = 2
_LOADING_TOLD_SINCE = 2
_IMPLICIT_TRANSACTIONS_SINCE = 5
_ABORTABLE_SINCE = 4
_NOT_HERE = (Error.COORDINATOR_NOT_AVAILABLE,)


# OffsetCommit.


def offset_commit(request: OffsetCommitRequest, call: Call) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    image = call.node.metadata.image
    known, failed = [], []
    for topic in request.topics:
        error = _resolve(topic, image, call.version)
        partitions = image.topics[topic.name].partitions if error is None else {}
        indexes = column(topic.partitions, "partition_index")
        if error is not None or not all(map(partitions.__contains__, indexes)):
            wrong = [index for index in indexes if index not in partitions]
            failed.append(_commit_failed(topic, wrong, error or Error.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [one for one in topic.partitions if one.partition_index in partitions]
        if topic.partitions:
            known.append(topic)
    if not known:
        return OffsetCommitResponse(topics=failed)
    request.topics = known

    def refused(refusal: Refused) -> OffsetCommitResponse:
        return OffsetCommitResponse(
            topics=[
                _commit_failed(topic, column(topic.partitions, "partition_index"), refusal.error) for topic in known
            ]
        )

    version = call.version
    answer = call.node.groups.submit(
        request.group_id,
        lambda shard, now_ms, _: shard.offset_requests.commit(request, version, now_ms),
        refused=refused,
        holder=call.connection,
    )
    return answer if not failed else _merged(answer, failed)


def _resolve(topic: OffsetCommitRequestTopic, image: Image, version: int) -> Error | None:
    """Give the topic what the client left out: its name or its id."""
    if version >= _IDS_SINCE:
        by_id = image.topic_by_id(topic.topic_id)
        if by_id is None:
            return Error.UNKNOWN_TOPIC_ID
        topic.name = by_id.name
        return None
    by_name = image.topics.get(topic.name)
    if by_name is None:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    topic.topic_id = by_name.topic_id
    return None


def _commit_failed(topic: OffsetCommitRequestTopic, indexes: Sequence[int], error: Error) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[OffsetCommitResponsePartition(partition_index=index, error_code=error) for index in indexes],
    )


async def _merged(
    answer: "OffsetCommitResponse | Future[OffsetCommitResponse]", failed: list[OffsetCommitResponseTopic]
) -> OffsetCommitResponse:
    """A topic stands once, with what succeeded and what failed."""
    response = await answer if isinstance(answer, Future) else answer
    by_name = {topic.name: topic for topic in response.topics}
    for topic in failed:
        if topic.name and topic.name in by_name:
            by_name[topic.name].partitions = [*by_name[topic.name].partitions, *topic.partitions]
        else:
            response.topics.append(topic)
    return response


# OffsetFetch.


async def offset_fetch(request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    if call.version >= _GROUPS_SINCE:
        groups = [await _fetch(group, call, request.require_stable) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    asked = None
    if request.topics is not None:
        asked = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    group = await _fetch(OffsetFetchRequestGroup(group_id=request.group_id, topics=asked), call, request.require_stable)
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        metadata=one.metadata,
                        error_code=one.error_code,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


async def _fetch(group: OffsetFetchRequestGroup, call: Call, require_stable: bool) -> OffsetFetchResponseGroup:
    image, by_id = call.node.metadata.image, call.version >= _IDS_SINCE
    unknown: list[OffsetFetchResponseTopics] = []
    if by_id and group.topics is not None:
        known = []
        for topic in group.topics:
            found = image.topic_by_id(topic.topic_id)
            if found is None:
                unknown.append(_fetch_failed(topic, Error.UNKNOWN_TOPIC_ID))
            else:
                topic.name = found.name
                known.append(topic)
        group.topics = known
    try:
        seen = call.node.groups.read(
            group.group_id, lambda shard, _: shard.offset_requests.fetch(group, require_stable=require_stable)
        )
        told = await seen if isinstance(seen, Future) else seen
    except Refused as refusal:
        return _group_failed(group, refusal.error, call.version)
    if by_id and group.topics is None:
        told.topics = [one for one in told.topics if one.name in image.topics]
        for one in told.topics:
            one.topic_id = image.topics[one.name].topic_id
    told.topics += unknown
    return told


def _group_failed(group: OffsetFetchRequestGroup, error: Error, version: int) -> OffsetFetchResponseGroup:
    if error in _NOT_HERE:
        error = Error.NOT_COORDINATOR  # Consumers before Kafka 3.9 do not know the other here, and give up.
    if version >= _GROUP_ERROR_SINCE:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error)
    topics = [_fetch_failed(topic, error) for topic in group.topics or ()]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


def _fetch_failed(topic: OffsetFetchRequestTopics, error: Error) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[no_offset(index, error) for index in topic.partition_indexes],
    )


# OffsetDelete.


async def offset_delete(request: OffsetDeleteRequest, call: Call) -> OffsetDeleteResponse:
    if not request.group_id:
        return _nothing_deleted(Error.INVALID_GROUP_ID)
    image = call.node.metadata.image
    known: list[OffsetDeleteRequestTopic] = []
    failed: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        partitions = image.topics[topic.name].partitions if topic.name in image.topics else {}
        wrong = [one.partition_index for one in topic.partitions if one.partition_index not in partitions]
        if wrong or topic.name not in image.topics:
            failed.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(
                            partition_index=index, error_code=Error.UNKNOWN_TOPIC_OR_PARTITION
                        )
                        for index in wrong
                    ],
                )
            )
        valid = [one for one in topic.partitions if one.partition_index in partitions]
        if valid:
            known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=valid))
    request.topics = known
    response = await call.node.groups.decide(
        request.group_id,
        lambda shard, _now_ms, _: shard.offset_requests.delete(request),
        refused=lambda refusal: _nothing_deleted(refusal.error),
    )
    if response.error_code == Error.NONE:
        by_name = {topic.name: topic for topic in response.topics}
        for one in failed:
            if one.name in by_name:
                by_name[one.name].partitions += one.partitions
            else:
                response.topics.append(one)
    return response


def _nothing_deleted(error: Error) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=[])


# TxnOffsetCommit.


async def txn_offset_commit(request: TxnOffsetCommitRequest, call: Call) -> TxnOffsetCommitResponse:
    image = call.node.metadata.image
    known: list[TxnOffsetCommitRequestTopic] = []
    failed: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        partitions = image.topics[topic.name].partitions if topic.name in image.topics else {}
        wrong = [one.partition_index for one in topic.partitions if one.partition_index not in partitions]
        if wrong or topic.name not in image.topics:
            failed.append(_txn_failed(topic.name, wrong, Error.UNKNOWN_TOPIC_OR_PARTITION))
        valid = [one for one in topic.partitions if one.partition_index in partitions]
        if valid:
            known.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=valid))
    if not known:
        return TxnOffsetCommitResponse(throttle_time_ms=0, topics=failed)
    request.topics = known
    try:
        response = await _commit_in_transaction(request, call)
    except Refused as refusal:
        response = _all_txn_failed(request, refusal.error, call.version)
    by_name = {topic.name: topic for topic in response.topics}
    for one in failed:
        if one.name in by_name:
            by_name[one.name].partitions += one.partitions
        else:
            response.topics.append(one)
    return response


async def _commit_in_transaction(request: TxnOffsetCommitRequest, call: Call) -> TxnOffsetCommitResponse:
    node = call.node
    if not request.group_id:
        raise Refused(Error.INVALID_GROUP_ID)
    index = node.groups.partition_of(request.group_id)
    producer = ProducerStamp(request.producer_id, request.producer_epoch)
    place = (CONSUMER_OFFSETS, index)
    refusals = await node.transactions.admit(
        request.transactional_id,
        ProducerIdentity(*producer),
        [place],
        adds=call.version >= _IMPLICIT_TRANSACTIONS_SINCE,
    )
    if place in refusals:
        raise Refused(refusals[place])
    image = node.metadata.image
    topic_ids = {
        topic.name: image.topics[topic.name].topic_id for topic in request.topics if topic.name in image.topics
    }

    def handle(shard: GroupShard, now_ms: int, _: Token) -> Decision[TxnOffsetCommitResponse]:
        return shard.offset_requests.commit_in_transaction(request, topic_ids, call.version, now_ms)

    return await node.groups.decide(request.group_id, handle, producer=producer)


def _all_txn_failed(request: TxnOffsetCommitRequest, error: Error, version: int) -> TxnOffsetCommitResponse:
    if version < _LOADING_TOLD_SINCE and error is Error.COORDINATOR_LOAD_IN_PROGRESS:
        error = Error.COORDINATOR_NOT_AVAILABLE  # Older producers take the other for fatal.
    error = told_to_writer(error, knows_abortable=version >= _ABORTABLE_SINCE)
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            _txn_failed(topic.name, [one.partition_index for one in topic.partitions], error)
            for topic in request.topics
        ],
    )


def _txn_failed(name: str, indexes: list[int], error: Error) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=name,
        partitions=[TxnOffsetCommitResponsePartition(partition_index=index, error_code=error) for index in indexes],
    )
