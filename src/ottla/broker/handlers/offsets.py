"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from functools import partial
from typing import NamedTuple

from ottla.broker.network.dispatch import Call
from ottla.broker.partitions.partition import Partition
from ottla.config import CLEANUP_POLICY
from ottla.core.log.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from ottla.core.metadata.names import is_internal
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog
from ottla.storage.segment_files import TimeFound
from ottla.wire.api.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.wire.errors import Error, Refused

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
SPECIAL_SINCE = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""Timestamps below zero with a special meaning, and the version of ListOffsets that introduced them."""
_ISOLATION_LEVELS = (0, 1)
_READ_COMMITTED = 1
_CONSUMER = -1
_LEADER_EPOCH_SINCE = 4
_NOT_FOUND = TimeFound(-1, -1, -1)
_LOOK_UP_COST = 16
"""The cost of a look-up by time, which reads files, in elements of the budget."""


class _Moved(NamedTuple):
    """The result of DeleteRecords for one partition."""

    start: int
    result: DeleteRecordsPartitionResult


async def list_offsets(request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    """List offsets by timestamp. A partition that is named twice is refused, because the two timestamps may differ. The
    timestamps of very many segments are read in a thread."""
    budget = call.budget
    asked: dict[str, dict[int, ListOffsetsPartition]] = {}
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        async for part in budget.parts(topic.partitions):
            partitions = asked.setdefault(topic.name, {})
            for one in part:
                if one.partition_index in partitions:
                    repeated.add((topic.name, one.partition_index))
                partitions[one.partition_index] = one
    topics = []
    for name, wanted in asked.items():
        told = []
        for one in wanted.values():
            is_repeated = (name, one.partition_index) in repeated
            if not is_repeated and (log := _log_to_learn(call, name, one)) is not None:
                await log.learn_times()
            told.append(_list_partition(call, request, name, one, is_repeated))
            if budget.is_spent(1 if one.timestamp < 0 else _LOOK_UP_COST):
                await budget.give_way()
        topics.append(ListOffsetsTopicResponse(name=name, partitions=told))
    return ListOffsetsResponse(topics=topics)


def _log_to_learn(call: Call, topic: str, asked: ListOffsetsPartition) -> PartitionLog | None:
    if asked.timestamp < 0 and asked.timestamp != MAX_TIMESTAMP:
        return None
    try:
        log = call.node.partition(topic, asked.partition_index).log
        return log if log.must_learn_times else None
    except Refused:
        return None  # The response contains the error.


def _list_partition(
    call: Call, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition, is_repeated: bool
) -> ListOffsetsPartitionResponse:
    error, found = Error.NONE, _NOT_FOUND
    try:
        if is_repeated:
            raise Refused(Error.INVALID_REQUEST, f"{topic}-{asked.partition_index} is asked for twice")
        if asked.timestamp < 0 and SPECIAL_SINCE.get(asked.timestamp, call.version + 1) > call.version:
            raise Refused(
                Error.UNSUPPORTED_VERSION, f"timestamp {asked.timestamp} means nothing in version {call.version}"
            )
        if request.isolation_level not in _ISOLATION_LEVELS:
            raise Refused(Error.INVALID_REQUEST, f"there is no isolation level {request.isolation_level}")
        partition = call.node.partition(topic, asked.partition_index)
        partition.check_epoch(asked.current_leader_epoch)
        found = _find(partition, asked.timestamp, _upper_offset(partition, request))
    except Refused as refusal:
        error = refusal.error
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=error,
        offset=found.offset,
        timestamp=found.timestamp,
        leader_epoch=found.leader_epoch if call.version >= _LEADER_EPOCH_SINCE else -1,
    )


def _upper_offset(partition: Partition, request: ListOffsetsRequest) -> int:
    """The offset up to which records are visible. Replicas and tools have no isolation level."""
    if request.replica_id != _CONSUMER:
        return partition.log.state.end_offset
    return partition.last_stable_offset if request.isolation_level == _READ_COMMITTED else partition.high_watermark


def _find(partition: Partition, timestamp: int, upper: int) -> TimeFound:
    log = partition.log.state
    match timestamp:
        case _ if timestamp == LATEST:
            return TimeFound(upper, -1, partition.leader_epoch)
        case _ if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return TimeFound(log.log_start_offset, -1, log.epochs.epoch_at(log.log_start_offset))
        case _ if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return _NOT_FOUND
        case _ if timestamp == MAX_TIMESTAMP:
            found = partition.log.find_max_timestamp()
        case _:
            found = partition.log.find_time(timestamp)
    return found if found is not None and found.offset < upper else _NOT_FOUND


async def offset_for_leader_epoch(request: OffsetForLeaderEpochRequest, call: Call) -> OffsetForLeaderEpochResponse:
    topics = []
    for topic in request.topics:
        find = partial(_epoch_end, call, topic.topic)
        partitions = await call.budget.each(topic.partitions, find)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


def _epoch_end(call: Call, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    error, epoch, end_offset = Error.NONE, UNDEFINED_EPOCH, UNDEFINED_OFFSET
    try:
        partition = call.node.partition(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        log = partition.log.state
        epoch, end_offset = log.epochs.end_offset_of(asked.leader_epoch, log.end_offset)
    except Refused as refusal:
        error = refusal.error
    return EpochEndOffset(partition=asked.partition, error_code=error, leader_epoch=epoch, end_offset=end_offset)


async def delete_records(request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    """Delete records before an offset. If a partition has several offsets, the last one is used, as in Kafka. The
    response is sent when the new log starts are durable: they are written once per directory, in a thread."""
    asked: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        async for part in call.budget.parts(topic.partitions):
            asked.setdefault(topic.name, {}).update({one.partition_index: one.offset for one in part})
    results: list[DeleteRecordsTopicResult] = []
    moved: dict[Partition, _Moved] = {}
    for name, offsets in asked.items():
        partitions = []
        for index, offset in offsets.items():
            result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=Error.NONE)
            try:
                partition, start = _new_start(call, name, index, offset)
                moved[partition] = _Moved(start, result)
            except Refused as refusal:
                result.error_code = refusal.error
            partitions.append(result)
            if call.budget.is_spent():
                await call.budget.give_way()
        results.append(DeleteRecordsTopicResult(name=name, partitions=partitions))
    for directory in dict.fromkeys(partition.log.directory for partition in moved):
        here = {partition: to for partition, to in moved.items() if partition.log.directory is directory}
        await _keep_log_starts(directory, here, call)
    return DeleteRecordsResponse(throttle_time_ms=0, topics=results)


def _new_start(call: Call, topic: str, index: int, offset: int) -> tuple[Partition, int]:
    """The partition, and its new log start."""
    partition = call.node.partition(topic, index)
    if is_internal(topic):
        raise Refused(Error.INVALID_TOPIC_EXCEPTION, f"the records of {topic} are the cluster's own")
    if "delete" not in partition.log.state.config[CLEANUP_POLICY]:
        raise Refused(Error.POLICY_VIOLATION, f"{partition.name}: cleanup.policy does not allow to delete records")
    wanted = partition.high_watermark if offset == LATEST else offset
    if wanted < 0:
        raise Refused(Error.OFFSET_OUT_OF_RANGE, f"{partition.name}: no record has offset {wanted}")
    is_new = partition.log.state.is_new_start(wanted)
    return partition, wanted if is_new else partition.log_start_offset


async def _keep_log_starts(directory: LogDirectory, moved: dict[Partition, _Moved], call: Call) -> None:
    try:
        with directory.guard("delete records"):
            starts = {partition.log.key: to.start for partition, to in moved.items()}
            await directory.disk.in_thread(directory.begin_checkpoint({}, {}, starts))
    except Refused as refusal:
        for to in moved.values():
            to.result.error_code = refusal.error
        return
    for partition, to in moved.items():
        try:
            partition.log.log_start_kept(to.start)
            partition.wake_all()
            to.result.low_watermark = partition.log_start_offset
        except Refused as refusal:
            to.result.error_code = refusal.error
        if call.budget.is_spent():
            await call.budget.give_way()
