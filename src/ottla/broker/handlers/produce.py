"""Produce: append batches to the partitions led here."""

from asyncio import Future
from collections.abc import Awaitable, Generator, Mapping
from typing import NamedTuple

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
from ottla.kernel import Checked, InvalidRecords, TakesLong
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
        return _produce_wide(request, call)
    if request.transactional_id is None:
        return _produce(request, call, _NOBODY_ASKED)
    admitted, turns = admissions(request, call), call.connection.produce_turns
    if isinstance(admitted, Mapping) and not turns.taken:
        return _produce(request, call, admitted)
    _keep_records(request)
    turns.taken += 1
    later = _produce_in_turn(request, call, admitted, turns)
    if request.acks == 0:
        call.node.spawn(later)
        return None
    return later


def _keep_records(request: ProduceRequest) -> None:
    """The connection reads its next request over these bytes."""
    for topic in request.topic_data:
        for one in topic.partition_data:
            one.records = None if one.records is None else bytearray(one.records)


async def _produce_wide(request: ProduceRequest, call: Call) -> ProduceResponse | None:
    """To very many partitions. The connection takes no other request until this one is answered, and the records stay
    where they are until then."""
    admitted: Admissions = _NOBODY_ASKED
    if request.transactional_id is not None:
        begun = await call.budget.run(admissions_in_steps(request, call), BATCHES_PER_STEP)
        admitted = begun if isinstance(begun, Mapping) else await begun
    return await _go_on(_append_all(request, call, admitted), None, call)


async def _produce_in_turn(
    request: ProduceRequest, call: Call, admitted: Admissions | Awaitable[Admissions], turns: Turns
) -> ProduceResponse | None:
    """In a transaction whose coordinator has to be asked first. What was sent after it on this connection waits, though
    its own partition may need no question any more: its sequences follow."""
    try:
        async with turns.lock:
            asked = admitted if isinstance(admitted, Mapping) else await admitted
            produced = await _append_in_turns(_append_all(request, call, asked), None, call)
    finally:
        turns.taken -= 1
    return await produced if isinstance(produced, Awaitable) else produced


def _produce(
    request: ProduceRequest, call: Call, admitted: Admissions
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    steps = _append_all(request, call, admitted)
    try:
        while True:
            long_one = next(steps)
            if long_one is not None or call.budget.is_spent(_APPEND_COST * _APPENDS_PER_STEP):
                _keep_records(request)
                call.is_alone = True  # What is sent after it may have sequences that follow.
                return _go_on(steps, long_one, call)
    except StopIteration as done:
        response: ProduceResponse | Awaitable[ProduceResponse] | None = done.value
        return response


async def _go_on(steps: "_Appending", long_one: "_LongOne | None", call: Call) -> ProduceResponse | None:
    produced = await _append_in_turns(steps, long_one, call)
    return await produced if isinstance(produced, Awaitable) else produced


async def _append_in_turns(
    steps: "_Appending", long_one: "_LongOne | None", call: Call
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    """The rest of the batches: those that take long are checked in a thread, and the others have their turn."""
    try:
        while True:
            if long_one is not None:
                checked = await _checked(long_one, call)
                long_one = steps.send(checked)
            else:
                if call.budget.is_spent(_APPEND_COST * _APPENDS_PER_STEP):
                    await call.budget.give_way()
                long_one = next(steps)
    except StopIteration as done:
        response: ProduceResponse | Awaitable[ProduceResponse] | None = done.value
        return response


async def _checked(long_one: "_LongOne", call: Call) -> Checked | Refused:
    """A few at a time, because each may unpack to 64 MiB."""
    async with call.node.long_checks:
        try:
            return await call.node.store.disk.in_thread(long_one.check)
        except Refused as refusal:
            return refusal


def _append_all(request: ProduceRequest, call: Call, admitted: Admissions) -> "_Appending":
    syncs: list[Sync] = []
    responses = []
    appended = 0
    for topic in request.topic_data:
        name = call.node.topic_name(topic.topic_id) if call.version >= TOPIC_IDS_SINCE else topic.name
        partitions = []
        for one in topic.partition_data:
            admission = admitted.get((name or "", one.index)) if admitted else None
            where = _Where(topic, name, one, admission)
            try:
                partitions.append(_append(call, request.acks, where, syncs, None))
            except TakesLong:
                checked = yield _LongOne(call, where)
                if isinstance(checked, Refused):
                    partitions.append(refused(one.index, checked))
                else:
                    partitions.append(_append(call, request.acks, where, syncs, checked))
            appended += 1
            if appended % _APPENDS_PER_STEP == 0:
                yield None
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions))
    response = ProduceResponse(responses=responses)
    if request.acks == 0:
        _cut_off_if_refused(response, call)
        return None
    return _after(syncs, response) if syncs else response


class _Where(NamedTuple):
    topic: TopicProduceData
    name: str | None
    data: PartitionProduceData
    admission: Admission


class _LongOne(NamedTuple):
    """A batch that takes long to check."""

    call: Call
    where: _Where

    def check(self) -> Checked:
        """In a thread."""
        topic, name, data, _ = self.where
        assert data.records is not None
        return self.call.node.partition(name, data.index, topic.topic_id).log.check(memoryview(data.records))


_Appending = Generator[_LongOne | None, Checked | Refused | None, "ProduceResponse | Awaitable[ProduceResponse] | None"]
"""Pauses after some batches, and where one takes long: it wants to be sent what became of the check."""


def _append(
    call: Call, acks: int, where: _Where, syncs: list[Sync], checked: Checked | None
) -> PartitionProduceResponse:
    topic, name, data, admission = where
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
        records = memoryview(data.records)
        appended = partition.append(records, acks=acks, verification=admission, at_once=True, checked=checked)
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
