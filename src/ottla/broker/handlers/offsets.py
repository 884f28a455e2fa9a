"""Where offsets are: by time, by leader epoch; and deleting what lies before one."""

from collections.abc import Awaitable

from ottla.broker.dispatch import Call
from ottla.broker.partition import Partition
from ottla.config import CLEANUP_POLICY
from ottla.core.log.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from ottla.core.metadata.names import is_internal
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
"""Timestamps below zero that mean something, and the version of ListOffsets that first knew them."""
_ISOLATION_LEVELS = (0, 1)
_READ_COMMITTED = 1
_CONSUMER = -1
_LEADER_EPOCH_SINCE = 4
_NOT_FOUND = TimeFound(-1, -1, -1)


def list_offsets(request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """At once, unless the times of very many segments have to be learned first: that is done in a thread."""
    asked = ((topic.name, partition) for topic in request.topics for partition in topic.partitions)
    ignorant = [log for topic, partition in asked if (log := _log_to_learn(call, topic, partition)) is not None]
    return _list_learned(request, call, ignorant) if ignorant else _list(request, call)


def _log_to_learn(call: Call, topic: str, asked: ListOffsetsPartition) -> PartitionLog | None:
    if asked.timestamp < 0 and asked.timestamp != MAX_TIMESTAMP:
        return None
    try:
        log = call.node.partition(topic, asked.partition_index).log
        return log if log.must_learn_times else None
    except Refused:
        return None  # Its answer says so.


async def _list_learned(request: ListOffsetsRequest, call: Call, logs: list[PartitionLog]) -> ListOffsetsResponse:
    for log in logs:
        await log.learn_times()
    return _list(request, call)


def _list(request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    """Each partition is told of once; what is asked of one twice may be two things, and is refused."""
    asked: dict[str, dict[int, ListOffsetsPartition]] = {}
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        partitions = asked.setdefault(topic.name, {})
        for one in topic.partitions:
            if one.partition_index in partitions:
                repeated.add((topic.name, one.partition_index))
            partitions[one.partition_index] = one
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=name,
                partitions=[_list_partition(call, request, name, one, repeated) for one in partitions.values()],
            )
            for name, partitions in asked.items()
            if partitions
        ]
    )


def _list_partition(
    call: Call, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition, repeated: set[tuple[str, int]]
) -> ListOffsetsPartitionResponse:
    error, found = Error.NONE, _NOT_FOUND
    try:
        if (topic, asked.partition_index) in repeated:
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
    """Where what may be told of ends. Replicas and tools have no isolation level."""
    if request.replica_id != _CONSUMER:
        return partition.log.log.end_offset
    return partition.last_stable_offset if request.isolation_level == _READ_COMMITTED else partition.high_watermark


def _find(partition: Partition, timestamp: int, upper: int) -> TimeFound:
    log = partition.log.log
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


def offset_for_leader_epoch(request: OffsetForLeaderEpochRequest, call: Call) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_epoch_end(call, topic.topic, one) for one in topic.partitions]
            )
            for topic in request.topics
        ],
    )


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


def delete_records(request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    """Each partition is told of once; of several offsets for one the last counts, as in Kafka."""
    asked: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update({one.partition_index: one.offset for one in topic.partitions})
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[_delete_before(call, name, index, offset) for index, offset in partitions.items()],
            )
            for name, partitions in asked.items()
            if partitions
        ],
    )


def _delete_before(call: Call, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    low_watermark, error = -1, Error.NONE
    try:
        partition = call.node.partition(topic, index)
        if is_internal(topic):
            raise Refused(Error.INVALID_TOPIC_EXCEPTION, f"the records of {topic} are the cluster's own")
        if "delete" not in partition.log.log.config[CLEANUP_POLICY]:
            raise Refused(Error.POLICY_VIOLATION, f"{partition.name}: cleanup.policy does not allow to delete records")
        wanted = partition.high_watermark if offset == LATEST else offset
        if wanted < 0:
            raise Refused(Error.OFFSET_OUT_OF_RANGE, f"{partition.name}: no record has offset {wanted}")
        low_watermark = partition.log.delete_records(wanted)
        partition.wake_all()
    except Refused as refusal:
        error = refusal.error
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=error)
