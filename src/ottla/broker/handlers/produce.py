"""Produce: append batches to the partitions led here."""

from asyncio import Future
from collections.abc import Awaitable, Mapping

from ottla.broker.backlog import at_once
from ottla.broker.dispatch import Call
from ottla.broker.handlers.transactional_produce import (
    BATCHES_PER_STEP,
    TOPIC_IDS_SINCE,
    Admission,
    Admissions,
    admissions,
    admissions_in_steps,
)
from ottla.broker.turns import Turns
from ottla.core.metadata.names import is_internal
from ottla.kernel import InvalidRecords
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
from ottla.wire.codec import Steps
from ottla.wire.errors import Error, Refused

_ACKS = (0, 1, -1)
_ADMIN = "__admin_client"
"""The client id by which Kafka's tools may write to internal topics."""

_NOBODY_ASKED: Admissions = {}
_APPENDS_PER_STEP = 8
_APPEND_COST = 8
"""Of a batch that is written, counted in elements that are only looked at."""

Sync = tuple["Future[Refused | None]", PartitionProduceResponse]
"""What an answer waits for, and the part of it that depends on that."""


def produce(request: ProduceRequest, call: Call) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    if call.is_wide:
        return _produce_in_turns(request, call)
    if request.transactional_id is None:
        return _produce(request, call, _NOBODY_ASKED)
    admitted, turns = admissions(request, call), call.connection.produce_turns
    if isinstance(admitted, Mapping) and not turns.taken:
        return _produce(request, call, admitted)
    for topic in request.topic_data:
        for one in topic.partition_data:
            # The connection reads its next request over these bytes.
            one.records = None if one.records is None else bytearray(one.records)
    turns.taken += 1
    later = _produce_in_turn(request, call, admitted, turns)
    if request.acks == 0:
        call.node.spawn(later)
        return None
    return later


async def _produce_in_turns(request: ProduceRequest, call: Call) -> ProduceResponse | None:
    """To very many partitions. The connection takes no other request until this one is answered, and the records stay
    where they are until then."""
    admitted: Admissions = _NOBODY_ASKED
    if request.transactional_id is not None:
        begun = await call.budget.run(admissions_in_steps(request, call), BATCHES_PER_STEP)
        admitted = begun if isinstance(begun, Mapping) else await begun
    produced = await call.budget.run(_append_all(request, call, admitted), _APPEND_COST * _APPENDS_PER_STEP)
    return await produced if isinstance(produced, Awaitable) else produced


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


def _produce(
    request: ProduceRequest, call: Call, admitted: Admissions
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    return at_once(_append_all(request, call, admitted))


def _append_all(
    request: ProduceRequest, call: Call, admitted: Admissions
) -> Steps[ProduceResponse | Awaitable[ProduceResponse] | None]:
    syncs: list[Sync] = []
    responses = []
    appended = 0
    for topic in request.topic_data:
        name = call.node.topic_name(topic.topic_id) if call.version >= TOPIC_IDS_SINCE else topic.name
        partitions = []
        for one in topic.partition_data:
            admission = admitted.get((name or "", one.index)) if admitted else None
            partitions.append(_append(call, request.acks, topic, name, one, syncs, admission))
            appended += 1
            if appended % _APPENDS_PER_STEP == 0:
                yield
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions))
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
        if acks not in _ACKS:
            raise Refused(Error.INVALID_REQUIRED_ACKS, f"acks={acks}; 0, 1 and -1 (all) are possible")
        if name is not None and is_internal(name) and call.client_id != _ADMIN:
            raise Refused(Error.INVALID_TOPIC_EXCEPTION, f"{name} is written by the cluster itself")
        partition = call.node.partition(name, data.index, topic.topic_id)
        if data.records is None:
            raise Refused(Error.INVALID_RECORD, f"{partition.name}: no record batch was sent")
        if isinstance(admission, Refused):
            raise admission
        appended = partition.append(memoryview(data.records), acks=acks, verification=admission)
    except Refused as refusal:
        return refused(data.index, refusal)
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
        error_message=refusal.brief,
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
