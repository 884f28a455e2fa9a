"""Produce: append batches to the partitions led here.

Rule 1: transactional records are accepted only if the request names its transactional id. Otherwise a client without
        access to any transactional id could block the last stable offset forever (CVE-2018-17196). A violation fails
        the whole request, as in Kafka.
Rule 2: errors are checked in Kafka's order: the partition, the batch, the transaction, the acks.
Rule 3: if a request names a partition twice, none of its batches is appended, and the partition has one error. (Kafka
        appends the last batch and silently drops the others.)
"""

from collections.abc import Awaitable, Generator, Mapping
from typing import NamedTuple

from ottla.broker.handlers.transactional_produce import (
    BATCHES_PER_STEP,
    TOPIC_IDS_SINCE,
    Admission,
    Admissions,
    admissions,
    admissions_in_steps,
)
from ottla.broker.network.backlog import at_once
from ottla.broker.network.dispatch import Call
from ottla.broker.network.fifo import Fifo
from ottla.broker.partitions.commits import Commit
from ottla.core.metadata.names import is_internal
from ottla.kernel import Buffer, Checked, Codec, CorruptBatch, InvalidRecords, TakesLong, is_transactional, read_header
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
"""Refusals of a log after which the response has no log start offset."""
_ADMIN = "__admin_client"
"""The client id with which Kafka's tools may write to internal topics."""

_NOBODY_ASKED: Admissions = {}
_TWICE = bytearray(b"named twice")
_LOOKS_PER_STEP = 64
_APPENDS_PER_STEP = 8
_APPEND_COST = 8
"""The cost of appending a batch, in elements of the budget."""

Awaited = tuple[Commit, PartitionProduceResponse]
"""A commit that the response waits for, and the part of the response that depends on it."""


def produce(request: ProduceRequest, call: Call) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    if call.is_wide:
        return _produce_wide(request, call)
    if (refusal := at_once(_prepare(request))) is not None:
        return _all_refused(request, refusal, call)
    if request.transactional_id is None:
        return _produce(request, call, _NOBODY_ASKED)
    try:
        admitted, fifo = admissions(request, call), call.connection.produce_fifo
    except Refused as refused_all:
        return _all_refused(request, refused_all, call)
    if isinstance(admitted, Mapping) and not fifo.entered:
        return _produce(request, call, admitted)
    _keep_records(request)
    fifo.entered += 1
    later = _produce_in_turn(request, call, admitted, fifo)
    if request.acks == 0:
        call.node.spawn(later)
        return None
    return later


def _keep_records(request: ProduceRequest) -> None:
    """Copy the records, because the connection receives its next request into the same buffer."""
    for topic in request.topic_data:
        for one in topic.partition_data:
            if one.records is not None and one.records is not _TWICE:
                one.records = bytearray(one.records)


async def _produce_wide(request: ProduceRequest, call: Call) -> ProduceResponse | None:
    """A Produce to very many partitions. The connection takes no other request until this one is answered, and the
    records stay in the buffer until then."""
    admitted: Admissions = _NOBODY_ASKED
    if (refusal := await call.budget.run(_prepare(request), _LOOKS_PER_STEP)) is not None:
        return _all_refused(request, refusal, call)
    if request.transactional_id is not None:
        try:
            begun = await call.budget.run(admissions_in_steps(request, call), BATCHES_PER_STEP)
        except Refused as refused_all:
            return _all_refused(request, refused_all, call)
        admitted = begun if isinstance(begun, Mapping) else await begun
    return await _go_on(_append_all(request, call, admitted), None, call)


async def _produce_in_turn(
    request: ProduceRequest, call: Call, admitted: Admissions | Awaitable[Admissions], fifo: Fifo
) -> ProduceResponse | None:
    """A Produce in a transaction whose coordinator must be asked first. Later requests on this connection wait, even
    for other partitions, because their sequences follow."""
    try:
        async with fifo.lock:
            asked = admitted if isinstance(admitted, Mapping) else await admitted
            produced = await _append_in_turns(_append_all(request, call, asked), None, call)
    finally:
        fifo.entered -= 1
    return await produced if isinstance(produced, Awaitable) else produced


def _prepare(request: ProduceRequest) -> Steps[Refused | None]:
    """Merge duplicate partitions: one that was named twice has `_TWICE` for records (rule 3). Returns the refusal of
    the whole request, if any (rule 1)."""
    first: dict[tuple[str, bytes, int], PartitionProduceData] = {}
    is_odd = has_transactional = False
    for topic in request.topic_data:
        is_odd = is_odd or not topic.partition_data  # It does not appear in the response either.
        for number, one in enumerate(topic.partition_data, start=1):
            if request.transactional_id is None and one.records is not None and is_transactional(one.records):
                has_transactional = True
            known = first.setdefault((topic.name, topic.topic_id, one.index), one)
            if known is not one:
                known.records, is_odd = _TWICE, True
            if number % _LOOKS_PER_STEP == 0:
                yield
    if is_odd:
        for topic in request.topic_data:
            topic.partition_data = [
                one for one in topic.partition_data if first[topic.name, topic.topic_id, one.index] is one
            ]
            yield
        request.topic_data = [topic for topic in request.topic_data if topic.partition_data]
    if not has_transactional:
        return None
    return Refused(
        Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "records of a transaction in a Produce request that names no transactional id",
    )


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
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    steps = _append_all(request, call, admitted)
    try:
        while True:
            long_one = next(steps)
            if long_one is not None or call.budget.is_spent(_APPEND_COST * _APPENDS_PER_STEP):
                _keep_records(request)
                call.is_alone = True  # Requests sent after it may have sequences that follow.
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
    """Append the rest of the batches: expensive ones are checked in a thread, the others in turns on the loop."""
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
    """Check an expensive batch in a thread, only a few at a time: each may decompress to 64 MiB."""
    async with call.node.long_checks:
        try:
            return await call.node.store.disk.in_thread(long_one.check)
        except Refused as refusal:
            return refusal


def _append_all(request: ProduceRequest, call: Call, admitted: Admissions) -> "_Appending":
    commits: list[Awaited] = []
    responses = []
    appended = 0
    for topic in request.topic_data:
        name = call.node.topic_name(topic.topic_id) if call.version >= TOPIC_IDS_SINCE else topic.name
        partitions = []
        for one in topic.partition_data:
            admission = admitted.get((name or "", one.index)) if admitted else None
            where = _Where(topic, name, one, admission)
            try:
                partitions.append(_append(call, request.acks, where, commits, None))
            except TakesLong:
                checked = yield _LongOne(call, where)
                if isinstance(checked, Refused):
                    partitions.append(refused(one.index, checked))
                else:
                    partitions.append(_append(call, request.acks, where, commits, checked))
            appended += 1
            if appended % _APPENDS_PER_STEP == 0:
                yield None
        responses.append(_topic(topic, partitions))
    response = ProduceResponse(responses=responses)
    if request.acks == 0:
        _cut_off_if_refused(response, call)
        return None
    return _after(commits, response) if commits else response


class _Where(NamedTuple):
    topic: TopicProduceData
    name: str | None
    data: PartitionProduceData
    admission: Admission


class _LongOne(NamedTuple):
    """A batch that is expensive to check."""

    call: Call
    where: _Where

    def check(self) -> Checked:
        """Check the batch. Called in a thread."""
        topic, name, data, _ = self.where
        assert data.records is not None
        return self.call.node.partition(name, data.index, topic.topic_id).log.check(memoryview(data.records))


_Appending = Generator[_LongOne | None, Checked | Refused | None, "ProduceResponse | Awaitable[ProduceResponse] | None"]
"""Yields after some batches, and for a batch that is expensive to check: then it must be sent the result of the
check."""


def _append(
    call: Call, acks: int, where: _Where, commits: list[Awaited], checked: Checked | None
) -> PartitionProduceResponse:
    topic, name, data, admission = where
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
        records = memoryview(data.records)
        appended = partition.append(records, acks=acks, verification=admission, at_once=True, checked=checked)
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
    if acks and (commit := partition.committed(partition.leader_epoch, appended.last_offset + 1)) is not None:
        commits.append((commit, response))
    return response


def _check_rare(records: Buffer, call: Call, acks: int, topic: str, admission: Admission) -> None:
    """Checks that concern few requests, in Kafka's order (rule 2)."""
    if not _is_one_batch(records):
        return  # The append to the log refuses it with the exact reason.
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
    """Whether the bytes look like exactly one batch."""
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
        error_message=refusal.brief,
    )


def _cut_off_if_refused(response: ProduceResponse, call: Call) -> None:
    """acks=0 has no response to carry an error, so the connection is closed to inform the client."""
    for topic in response.responses:
        for one in topic.partition_responses:
            if one.error_code:
                warn("produce.refused", peer=call.connection.peer, reason=one.error_message)
                call.connection.close()
                return


async def _after(commits: list[Awaited], response: ProduceResponse) -> ProduceResponse:
    """Wait until the records are committed. If they are refused, so is their partition in the response."""
    for commit, one in commits:
        refusal = await commit
        if refusal is not None:
            one.error_code, one.error_message, one.base_offset = refusal.error, refusal.text, -1
    return response
