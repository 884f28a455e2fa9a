"""Where offsets are: by time, by leader epoch; and deleting what lies before one."""

from functools import partial
from itertools import chain

from ottla.broker.dispatch import Call
from ottla.broker.partition import Partition
from ottla.config import CLEANUP_POLICY
from ottla.core.log.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_log import PartitionLog
from ottla.storage.segment_files import TimeFound
from ottla.wire.api.delete_records import (
    DeleteRecordsPartition,
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
"""Timestamps below zero that mean something, and the version of ListOffsets that first knew them."""
_READ_COMMITTED = 1
_LEADER_EPOCH_SINCE = 4
_NOT_FOUND = TimeFound(-1, -1, -1)
_LOOK_UP_COST = 16
"""Of an offset by time, which is read from files, counted in those that are known."""


async def list_offsets(request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    """A partition that is named twice is refused each time. The times of very many segments are learned in a thread."""
    budget = call.budget
    named: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        async for part in budget.parts(topic.partitions):
            for asked in part:
                key = (topic.name, asked.partition_index)
                named[key] = named.get(key, 0) + 1
    topics = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            is_repeated = named[topic.name, asked.partition_index] > 1
            if not is_repeated and (log := _log_to_learn(call, topic.name, asked)) is not None:
                await log.learn_times()
            partitions.append(_list_partition(call, topic.name, asked, request.isolation_level, is_repeated))
            if budget.is_spent(1 if asked.timestamp < 0 else _LOOK_UP_COST):
                await budget.give_way()
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=partitions))
    return ListOffsetsResponse(topics=topics)


def _log_to_learn(call: Call, topic: str, asked: ListOffsetsPartition) -> PartitionLog | None:
    if asked.timestamp < 0 and asked.timestamp != MAX_TIMESTAMP:
        return None
    try:
        log = call.node.partition(topic, asked.partition_index).log
        return log if log.must_learn_times else None
    except Refused:
        return None  # Its answer says so.


def _list_partition(
    call: Call, topic: str, asked: ListOffsetsPartition, isolation: int, is_repeated: bool
) -> ListOffsetsPartitionResponse:
    error, found = Error.NONE, _NOT_FOUND
    try:
        if is_repeated:
            raise Refused(Error.INVALID_REQUEST, f"{topic}-{asked.partition_index} is asked for twice")
        if asked.timestamp < 0 and SPECIAL_SINCE.get(asked.timestamp, call.version + 1) > call.version:
            raise Refused(
                Error.UNSUPPORTED_VERSION, f"timestamp {asked.timestamp} means nothing in version {call.version}"
            )
        partition = call.node.partition(topic, asked.partition_index)
        partition.check_epoch(asked.current_leader_epoch)
        found = _find(partition, asked.timestamp, committed_only=isolation == _READ_COMMITTED)
    except Refused as refusal:
        error = refusal.error
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=error,
        offset=found.offset,
        timestamp=found.timestamp,
        leader_epoch=found.leader_epoch if call.version >= _LEADER_EPOCH_SINCE else -1,
    )


def _find(partition: Partition, timestamp: int, *, committed_only: bool) -> TimeFound:
    log = partition.log.log
    upper = partition.last_stable_offset if committed_only else partition.high_watermark
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
        log = partition.log.log
        epoch, end_offset = log.epochs.end_offset_of(asked.leader_epoch, log.end_offset)
    except Refused as refusal:
        error = refusal.error
    return EpochEndOffset(partition=asked.partition, error_code=error, leader_epoch=epoch, end_offset=end_offset)


async def delete_records(request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    """Answered when the new log starts are durable: written once for all partitions of a directory, in a thread."""
    results: list[DeleteRecordsTopicResult] = []
    moved: dict[Partition, list[DeleteRecordsPartitionResult]] = {}
    for topic in request.topics:
        partitions = []
        for one in topic.partitions:
            result = DeleteRecordsPartitionResult(
                partition_index=one.partition_index, low_watermark=-1, error_code=Error.NONE
            )
            try:
                partition = _delete_before(call, topic.name, one)
                moved.setdefault(partition, []).append(result)
            except Refused as refusal:
                result.error_code = refusal.error
            partitions.append(result)
            if call.budget.is_spent():
                await call.budget.give_way()
        results.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    for directory in dict.fromkeys(partition.log.directory for partition in moved):
        here = {partition: told for partition, told in moved.items() if partition.log.directory is directory}
        await _keep_log_starts(directory, here, call)
    return DeleteRecordsResponse(throttle_time_ms=0, topics=results)


def _delete_before(call: Call, topic: str, asked: DeleteRecordsPartition) -> Partition:
    """The partition, whose records before the offset count as deleted."""
    partition = call.node.partition(topic, asked.partition_index)
    if "delete" not in partition.log.log.config[CLEANUP_POLICY]:
        raise Refused(Error.POLICY_VIOLATION, f"{partition.name}: cleanup.policy does not allow to delete records")
    wanted = partition.high_watermark if asked.offset == LATEST else asked.offset
    if wanted < 0:
        raise Refused(Error.OFFSET_OUT_OF_RANGE, f"{partition.name}: no record has offset {wanted}")
    partition.log.log.advance_log_start(wanted)
    return partition


async def _keep_log_starts(
    directory: LogDirectory, moved: dict[Partition, list[DeleteRecordsPartitionResult]], call: Call
) -> None:
    starts = {partition.log.key: partition.log_start_offset for partition in moved}
    try:
        with directory.guard("delete records"):
            await directory.disk.in_thread(directory.begin_checkpoint({}, {}, starts))
    except Refused as refusal:
        for result in chain.from_iterable(moved.values()):
            result.error_code = refusal.error
        return
    for partition, told in moved.items():
        partition.log.log_start_kept()
        partition.wake_all()
        for result in told:
            result.low_watermark = partition.log_start_offset
        if call.budget.is_spent(len(told)):
            await call.budget.give_way()
