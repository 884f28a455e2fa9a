"""OffsetCommit, OffsetFetch, OffsetDelete, TxnOffsetCommit.

Rule 1: a topic or partition that does not exist fails alone and is not passed to the coordinator.
Rule 2: newer clients name topics by id. The coordinator uses names, and stores the id with the offset.
Rule 3: a request with very many partitions is decided in parts. Each partition has its own result.
"""

from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from ottla.broker.coordinators.admission import admit, told_to_writer
from ottla.broker.network.dispatch import Call
from ottla.core.groups.offset_requests import OffsetRequests, no_offset
from ottla.core.groups.shard import GroupShard
from ottla.core.metadata.image import Image
from ottla.core.metadata.names import CONSUMER_OFFSETS
from ottla.core.runtime.decision import Decision, Token
from ottla.core.runtime.shard import ProducerStamp, hash_cost
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
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.errors import Error, Refused
from ottla.wire.rows import Shared, column

_IDS_SINCE = 10
_GROUPS_SINCE = 8
_GROUP_ERROR_SINCE = 2
_LOADING_TOLD_SINCE = 2
_IMPLICIT_TRANSACTIONS_SINCE = 5
_ABORTABLE_SINCE = 4
_NOT_HERE = (Error.COORDINATOR_NOT_AVAILABLE,)
_PER_DECISION = 500

T = TypeVar("T")
E = TypeVar("E")
R = TypeVar("R")


# OffsetCommit.


def offset_commit(request: OffsetCommitRequest, call: Call) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    return _commit_many(request, call) if call.is_wide else _commit(request, call)


async def _commit_many(request: OffsetCommitRequest, call: Call) -> OffsetCommitResponse:
    told: dict[tuple[str, bytes], list[OffsetCommitResponsePartition]] = {}
    for few in few_at_a_time(request.topics, lambda topic: topic.partitions):
        part = OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            topics=[
                OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
                for topic, partitions in few
            ],
        )
        outcome = _commit(part, call)
        response = await outcome if isinstance(outcome, Awaitable) else outcome
        for one in response.topics:
            told.setdefault((one.name, one.topic_id), []).extend(one.partitions)
        if call.budget.is_spent(_PER_DECISION):
            await call.budget.give_way()
    return OffsetCommitResponse(
        topics=await call.budget.each(
            told.items(),
            lambda one: OffsetCommitResponseTopic(name=one[0][0], topic_id=one[0][1], partitions=one[1]),
        )
    )


def _commit(request: OffsetCommitRequest, call: Call) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
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
    """Fill in the topic's name or id, whichever the client left out."""
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
    """One entry per topic, with its successful and failed partitions."""
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
        groups: list[OffsetFetchResponseGroup] = []
        known: dict[tuple[str, str | None, int], OffsetFetchResponseGroup] = {}
        for group in request.groups:
            # A group may have very many offsets; if it is named again, the response shares the list.
            key = (group.group_id, group.member_id, group.member_epoch)
            if group.topics is not None:
                groups.append(await _fetch(group, call, request.require_stable))
            else:
                if key not in known:
                    known[key] = await _fetch(group, call, request.require_stable)
                groups.append(known[key])
            if call.budget.is_spent(hash_cost(group.group_id)):
                await call.budget.give_way()
        return OffsetFetchResponse(groups=groups)
    asked = None
    if request.topics is not None:
        asked = await call.budget.each(
            request.topics,
            lambda topic: OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes),
        )
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=asked)
    told = await _fetch(group, call, request.require_stable)
    topics = []
    for topic in told.topics:
        partitions = await call.budget.each(topic.partitions, _in_old_words)
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return OffsetFetchResponse(error_code=told.error_code, topics=topics)


def _in_old_words(one: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=one.partition_index,
        committed_offset=one.committed_offset,
        committed_leader_epoch=one.committed_leader_epoch,
        metadata=one.metadata,
        error_code=one.error_code,
    )


async def _fetch(group: OffsetFetchRequestGroup, call: Call, require_stable: bool) -> OffsetFetchResponseGroup:
    image, by_id = call.node.metadata.image, call.version >= _IDS_SINCE
    unknown: list[OffsetFetchResponseTopics] = []
    if by_id and group.topics is not None:
        known = []
        for topic in group.topics:
            found = image.topic_by_id(topic.topic_id)
            if found is None:
                errors = await call.budget.each(
                    topic.partition_indexes, partial(no_offset, error=Error.UNKNOWN_TOPIC_ID)
                )
                unknown.append(OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=errors))
            else:
                topic.name = found.name
                known.append(topic)
            if call.budget.is_spent():
                await call.budget.give_way()
        group.topics = known
    try:
        told = await _fetch_in_parts(group, call, require_stable)
    except Refused as refusal:
        return _group_failed(group, refusal.error, call.version)
    if by_id and group.topics is None:
        told = [one for one in told if one.name in image.topics]
        for one in told:
            one.topic_id = image.topics[one.name].topic_id
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=Shared([*told, *unknown]))


async def _fetch_in_parts(
    group: OffsetFetchRequestGroup, call: Call, require_stable: bool
) -> list[OffsetFetchResponseTopics]:
    async def read(look: Callable[[OffsetRequests], R]) -> R:
        seen = call.node.groups.read(group.group_id, lambda shard, _: look(shard.offset_requests))
        return await seen if isinstance(seen, Future) else seen

    asked = await read(lambda offsets: offsets.asked(group))
    told = await call.budget.each(
        asked, lambda one: OffsetFetchResponseTopics(name=one.name, topic_id=one.topic_id, partitions=[])
    )
    for few in few_at_a_time(zip(told, asked, strict=True), lambda pair: pair[1].partition_indexes):
        part = OffsetFetchRequestGroup(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            topics=[
                OffsetFetchRequestTopics(name=one.name, topic_id=one.topic_id, partition_indexes=list(indexes))
                for (_, one), indexes in few
            ],
        )
        found = await read(partial(OffsetRequests.fetch, request=part, require_stable=require_stable))
        for ((whole, _), _), one in zip(few, found.topics, strict=True):
            whole.partitions += one.partitions
        if call.budget.is_spent(_PER_DECISION):
            await call.budget.give_way()
    return told


def _group_failed(group: OffsetFetchRequestGroup, error: Error, version: int) -> OffsetFetchResponseGroup:
    if error in _NOT_HERE:
        error = Error.NOT_COORDINATOR  # Consumers before Kafka 3.9 do not know the other error here, and give up.
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
    told: dict[str, list[OffsetDeleteResponsePartition]] = {}
    failed: dict[str, list[OffsetDeleteResponsePartition]] = {}
    if not request.topics:
        return await _delete(request, call)  # The response reports in any case whether the group exists.
    for few in few_at_a_time(request.topics, lambda topic: topic.partitions):
        known, image = [], call.node.metadata.image  # Topics may be deleted between two turns.
        for topic, partitions in few:
            valid, wrong = _told_apart(image, topic.name, partitions)
            if wrong or topic.name not in image.topics:
                failed.setdefault(topic.name, []).extend(
                    OffsetDeleteResponsePartition(
                        partition_index=one.partition_index, error_code=Error.UNKNOWN_TOPIC_OR_PARTITION
                    )
                    for one in wrong
                )
            if valid:
                known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=valid))
        response = await _delete(OffsetDeleteRequest(group_id=request.group_id, topics=known), call)
        if response.error_code != Error.NONE:
            return response
        for one in response.topics:
            told.setdefault(one.name, []).extend(one.partitions)
        if call.budget.is_spent(_PER_DECISION):
            await call.budget.give_way()
    await _add(failed, told, call)
    return OffsetDeleteResponse(
        error_code=Error.NONE,
        throttle_time_ms=0,
        topics=await call.budget.each(
            told.items(), lambda one: OffsetDeleteResponseTopic(name=one[0], partitions=one[1])
        ),
    )


async def _delete(request: OffsetDeleteRequest, call: Call) -> OffsetDeleteResponse:
    return await call.node.groups.decide(
        request.group_id,
        lambda shard, _now_ms, _: shard.offset_requests.delete(request),
        refused=lambda refusal: _nothing_deleted(refusal.error),
    )


def _nothing_deleted(error: Error) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=[])


# TxnOffsetCommit.


async def txn_offset_commit(request: TxnOffsetCommitRequest, call: Call) -> TxnOffsetCommitResponse:
    told: dict[str, list[TxnOffsetCommitResponsePartition]] = {}
    failed: dict[str, list[TxnOffsetCommitResponsePartition]] = {}
    for few in few_at_a_time(request.topics, lambda topic: topic.partitions):
        known, image = [], call.node.metadata.image  # Topics may be deleted between two turns.
        for topic, partitions in few:
            valid, wrong = _told_apart(image, topic.name, partitions)
            if wrong or topic.name not in image.topics:
                error = _txn_failed(topic.name, wrong, Error.UNKNOWN_TOPIC_OR_PARTITION)
                failed.setdefault(topic.name, []).extend(error.partitions)
            if valid:
                known.append(TxnOffsetCommitRequestTopic(name=topic.name, partitions=valid))
        if known:
            for one in (await _commit_few_in_transaction(request, known, call)).topics:
                told.setdefault(one.name, []).extend(one.partitions)
        if call.budget.is_spent(_PER_DECISION):
            await call.budget.give_way()
    await _add(failed, told, call)
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=await call.budget.each(
            told.items(), lambda one: TxnOffsetCommitResponseTopic(name=one[0], partitions=one[1])
        ),
    )


async def _commit_few_in_transaction(
    request: TxnOffsetCommitRequest, topics: list[TxnOffsetCommitRequestTopic], call: Call
) -> TxnOffsetCommitResponse:
    few = TxnOffsetCommitRequest(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )
    try:
        return await _commit_in_transaction(few, call)
    except Refused as refusal:
        return _all_txn_failed(few, refusal.error, call.version)


async def _commit_in_transaction(request: TxnOffsetCommitRequest, call: Call) -> TxnOffsetCommitResponse:
    node = call.node
    if not request.group_id:
        raise Refused(Error.INVALID_GROUP_ID)
    index = node.groups.partition_of(request.group_id)
    producer = ProducerStamp(request.producer_id, request.producer_epoch)
    place = (CONSUMER_OFFSETS, index)
    refusals = await admit(
        node,
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
        error = Error.COORDINATOR_NOT_AVAILABLE  # Older producers treat the other error as fatal.
    error = told_to_writer(error, knows_abortable=version >= _ABORTABLE_SINCE)
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[_txn_failed(topic.name, topic.partitions, error) for topic in request.topics],
    )


def _txn_failed(
    name: str, partitions: Iterable[TxnOffsetCommitRequestPartition], error: Error
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=error)
            for one in partitions
        ],
    )


# Shared.


class _Named(Protocol):
    """A partition named in a request."""

    partition_index: int


P = TypeVar("P", bound=_Named)


async def _add(failed: Mapping[str, list[R]], told: dict[str, list[R]], call: Call) -> None:
    """Append the partitions that do not exist after those that were decided."""
    for name, errors in failed.items():
        told.setdefault(name, []).extend(errors)
        if call.budget.is_spent():
            await call.budget.give_way()


def _told_apart(image: Image, topic: str, partitions: Iterable[P]) -> tuple[list[P], list[P]]:
    """Split partitions into existing and missing ones."""
    found = image.topics.get(topic)
    there = found.partitions if found is not None else {}
    valid: list[P] = []
    wrong: list[P] = []
    for one in partitions:
        (valid if one.partition_index in there else wrong).append(one)
    return valid, wrong


def few_at_a_time(
    topics: Iterable[T], partitions_of: Callable[[T], Sequence[E]], limit: int = _PER_DECISION
) -> Iterator[list[tuple[T, Sequence[E]]]]:
    """Topics with some of their partitions, so that few are decided together. A topic may occur several times."""
    few: list[tuple[T, Sequence[E]]] = []
    count = 0
    for topic in topics:
        partitions, first = partitions_of(topic), 0
        while first < len(partitions) or not partitions:
            part = partitions[first : first + limit - count]
            few.append((topic, part))
            # A topic without partitions counts as one, because it costs time too.
            first, count = first + len(part), count + max(len(part), 1)
            if count >= limit:
                yield few
                few, count = [], 0
            if not partitions:
                break
    if few:
        yield few
