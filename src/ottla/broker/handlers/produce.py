"""Produce: append batches to the partitions led here.

Rule 1: records of a transaction are taken from a request that names its transactional id only. Otherwise a client that
        may use no transactional id could hold back the last stable offset for ever (CVE-2018-17196). They fail all of
        the request, as in Kafka.
Rule 2: what is wrong is told in Kafka's order: the partition, the batch, the transaction, the acks.
Rule 3: a partition that a request names twice gets none of its batches, and one answer. (Kafka appends the last batch
        and drops the others without a word.)
"""

from asyncio import Future
from collections.abc import Awaitable, Mapping

from ottla.broker.dispatch import Call
from ottla.broker.handlers.transactional_produce import TOPIC_IDS_SINCE, Admission, Admissions, admissions
from ottla.broker.turns import Turns
from ottla.core.metadata.names import is_internal
from ottla.kernel import Buffer, Codec, CorruptBatch, InvalidRecords, is_transactional, read_header
from ottla.observe.trace import warn
from ottla.wire.api.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.errors import Error, Refused

_ACKS = (0, 1, -1)
_ZSTD_SINCE = 7
_MAGIC = 2
_CODEC = 7
"""The bits of a batch's attributes that name its codec."""
_WITHOUT_LOG_START = (
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.MESSAGE_TOO_LARGE,
    Error.RECORD_LIST_TOO_LARGE,
    Error.CORRUPT_MESSAGE,
    Error.KAFKA_STORAGE_ERROR,
)
"""Refusals of a log that do not say where it begins."""
_ADMIN = "__admin_client"
"""The client id by which Kafka's tools may write to internal topics."""

_NOBODY_ASKED: Admissions = {}
_TWICE = bytearray(b"named twice")

Sync = tuple["Future[Refused | None]", PartitionProduceResponse]
"""What an answer waits for, and the part of it that depends on that."""


def produce(request: ProduceRequest, call: Call) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    strays = request.transactional_id is None and _has_transactional(request)
    if not _names_each_once(request):
        _leave_out_repeated(request)
    if strays:
        refusal = Refused(
            Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "records of a transaction in a Produce request that names no transactional id",
        )
        return _all_refused(request, refusal, call)
    if request.transactional_id is None:
        return _produce(request, call, _NOBODY_ASKED)
    try:
        admitted, turns = admissions(request, call), call.connection.produce_turns
    except Refused as refusal:
        return _all_refused(request, refusal, call)
    if isinstance(admitted, Mapping) and not turns.taken:
        return _produce(request, call, admitted)
    for topic in request.topic_data:
        for one in topic.partition_data:
            if one.records is not None and one.records is not _TWICE:
                # The connection reads its next request over these bytes.
                one.records = bytearray(one.records)
    turns.taken += 1
    later = _produce_in_turn(request, call, admitted, turns)
    if request.acks == 0:
        call.node.spawn(later)
        return None
    return later


async def _produce_in_turn(
    request: ProduceRequest, call: Call, admitted: Admissions | Awaitable[Admissions], turns: Turns
) -> ProduceResponse:
    """In a transaction whose coordinator has to be asked first. What was sent after it on this connection waits, though
    its own partition may need no question any more: its sequences follow."""
    try:
        async with turns.lock:
            response = _produce(request, call, admitted if isinstance(admitted, Mapping) else await admitted)
    finally:
        turns.taken -= 1
    return await response if isinstance(response, Awaitable) else response  # type: ignore[return-value]


def _names_each_once(request: ProduceRequest) -> bool:
    """As clients do. A topic without a partition counts as repeated: it is not told of either."""
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return True
    named = [(topic.name, topic.topic_id, one.index) for topic in topics for one in topic.partition_data]
    return len(set(named)) == len(named) and all(topic.partition_data for topic in topics)


def _leave_out_repeated(request: ProduceRequest) -> None:
    """Name each partition once, where it is first named. One that was named twice has `_TWICE` for records (rule 3)."""
    first: dict[tuple[str, bytes, int], PartitionProduceData] = {}
    for topic in request.topic_data:
        kept = []
        for one in topic.partition_data:
            key = (topic.name, topic.topic_id, one.index)
            if key in first:
                first[key].records = _TWICE
            else:
                first[key] = one
                kept.append(one)
        topic.partition_data = kept
    request.topic_data = [topic for topic in request.topic_data if topic.partition_data]


def _has_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for one in topic.partition_data:
            if one.records is not None and is_transactional(one.records):
                return True
    return False


def _all_refused(request: ProduceRequest, refusal: Refused, call: Call) -> ProduceResponse | None:
    responses = [
        _topic(topic, [refused(one.index, refusal) for one in topic.partition_data]) for topic in request.topic_data
    ]
    response = ProduceResponse(responses=responses)
    if request.acks == 0:
        _cut_off_if_refused(response, call)
        return None
    return response


def _topic(topic: TopicProduceData, partitions: list[PartitionProduceResponse]) -> TopicProduceResponse:
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions)


def _produce(
    request: ProduceRequest, call: Call, admitted: Admissions
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    syncs: list[Sync] = []
    responses = []
    for topic in request.topic_data:
        name = call.node.topic_name(topic.topic_id) if call.version >= TOPIC_IDS_SINCE else topic.name
        partitions = [
            _append(
                call, request.acks, topic, name, one, syncs, admitted.get((name or "", one.index)) if admitted else None
            )
            for one in topic.partition_data
        ]
        responses.append(_topic(topic, partitions))
    response = ProduceResponse(responses=responses)
    if request.acks == 0:
        _cut_off_if_refused(response, call)
        return None
    return _after(syncs, response) if syncs else response


def _append(
    call: Call,
    acks: int,
    topic: TopicProduceData,
    name: str | None,
    data: PartitionProduceData,
    syncs: list[Sync],
    admission: Admission,
) -> PartitionProduceResponse:
    try:
        partition = call.node.partition(name, data.index, topic.topic_id)
        if data.records is None:
            raise Refused(Error.INVALID_RECORD, f"{partition.name}: no record batch was sent")
        if data.records is _TWICE:
            raise Refused(Error.INVALID_REQUEST, f"{partition.name}: named more than once in the request")
        if call.version < _ZSTD_SINCE or acks not in _ACKS or (name is not None and is_internal(name)):
            _check_rare(data.records, call, acks, partition.log.key[0], admission)
        if isinstance(admission, Refused):
            raise admission
    except Refused as refusal:
        return refused(data.index, refusal)
    try:
        appended = partition.append(memoryview(data.records), acks=acks, verification=admission)
    except Refused as refusal:
        told = refused(data.index, refusal)
        if refusal.error not in _WITHOUT_LOG_START and _is_one_batch(data.records):
            told.log_start_offset = partition.log_start_offset
        return told
    response = PartitionProduceResponse(
        index=data.index,
        error_code=Error.NONE,
        base_offset=appended.first_offset,
        log_append_time_ms=appended.log_append_time,
        log_start_offset=partition.log_start_offset,
    )
    if acks and partition.must_sync:
        syncs.append((partition.synced(appended.last_offset + 1), response))
    return response


def _check_rare(records: Buffer, call: Call, acks: int, topic: str, admission: Admission) -> None:
    """What is asked of few requests, in Kafka's order (rule 2)."""
    if not _is_one_batch(records):
        return  # The log tells what is wrong with it.
    if call.version < _ZSTD_SINCE and read_header(records).attributes & _CODEC == Codec.ZSTD:
        raise Refused(
            Error.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd in a Produce request of version {call.version}; versions from {_ZSTD_SINCE} on take it",
        )
    if isinstance(admission, Refused):
        raise admission
    if acks not in _ACKS:
        raise Refused(Error.INVALID_REQUIRED_ACKS, f"acks={acks}; 0, 1 and -1 (all) are possible")
    if is_internal(topic) and call.client_id != _ADMIN:
        raise Refused(Error.INVALID_TOPIC_EXCEPTION, f"{topic} is written by the cluster itself")


def _is_one_batch(records: Buffer) -> bool:
    """Whether it has the outline of what is to be sent for a partition."""
    try:
        header = read_header(records)
    except CorruptBatch:
        return False
    return header.magic == _MAGIC and header.size == len(records)


def refused(index: int, refusal: Refused) -> PartitionProduceResponse:
    errors = refusal.record_errors if isinstance(refusal, InvalidRecords) else []
    return PartitionProduceResponse(
        index=index,
        error_code=refusal.error,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=one.batch_index, batch_index_error_message=one.message)
            for one in errors
        ],
        error_message=refusal.text,
    )


def _cut_off_if_refused(response: ProduceResponse, call: Call) -> None:
    """acks=0 has no answer to carry an error, so the connection is closed: the only way to tell the client."""
    for topic in response.responses:
        for one in topic.partition_responses:
            if one.error_code:
                warn("produce.refused", peer=call.connection.peer, reason=one.error_message)
                call.connection.close()
                return


async def _after(syncs: list[Sync], response: ProduceResponse) -> ProduceResponse:
    """Wait for the disk; an answer that it cannot keep is taken back."""
    for synced, one in syncs:
        refusal = await synced
        if refusal is not None:
            one.error_code, one.error_message, one.base_offset = refusal.error, refusal.text, -1
    return response
