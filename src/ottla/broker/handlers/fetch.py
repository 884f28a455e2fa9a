"""Fetch: read batches of the partitions led here, or wait until there are some."""

from asyncio import gather
from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.backlog import at_once
from ottla.broker.dispatch import Call
from ottla.broker.partition import Partition
from ottla.broker.waiters import Waiter
from ottla.config import FETCH_MAX_BYTES
from ottla.core.fetch_sessions import NEW_SESSION, NO_SESSION, Asked, FetchKey, partitions_in
from ottla.storage.slices import Slice
from ottla.wire.api.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.codec import Steps
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node

TOPIC_IDS_SINCE = 13
READ_COMMITTED = 1
WARM_MAX = 1 << 16
"""Whoever asks for so little most likely reads what has just been written."""
_SESSION_IDS = 2**31 - 1
_AT_ONCE_MAX = 128
"""Partitions of a session; more are read in turns."""
_PARTITIONS_PER_STEP = 16
_READ_COST = 4
"""Of a partition that is read, counted in elements that are only looked at."""


class _Read(NamedTuple):
    partitions: list[tuple[FetchKey, PartitionData]]
    size: int
    refused: bool
    large: list[tuple[Partition, Slice]]
    """Records that may have to be read from the disk first."""


def fetch(request: FetchRequest, call: Call) -> FetchResponse | Awaitable[FetchResponse] | Waiter:
    if call.is_wide or call.node.fetch_sessions.size_of(request.session_id) > _AT_ONCE_MAX:
        return _fetch_in_turns(request, call)
    try:
        asked = at_once(_ask(request, call))
    except Refused as refusal:
        return FetchResponse(throttle_time_ms=0, error_code=refusal.error, responses=[])
    read = at_once(_read(request, call.node, call.version, asked))
    if _is_enough(request, asked, read):
        response = at_once(_response(asked, read))
        cold = [found for partition, found in read.large if not partition.log.is_warm(found)]
        return _after_reading_ahead(call.node, cold, response) if cold else response
    return _wait(request, call, asked, read)


async def _fetch_in_turns(request: FetchRequest, call: Call) -> FetchResponse:
    """Of very many partitions."""
    budget = call.budget
    try:
        asked = await budget.run(_ask(request, call), _PARTITIONS_PER_STEP)
    except Refused as refusal:
        return FetchResponse(throttle_time_ms=0, error_code=refusal.error, responses=[])
    read = await budget.run(_read(request, call.node, call.version, asked), _READ_COST * _PARTITIONS_PER_STEP)
    if not _is_enough(request, asked, read):
        await _wait(request, call, asked, read)
        read = await budget.run(_read(request, call.node, call.version, asked), _READ_COST * _PARTITIONS_PER_STEP)
    response = await budget.run(_response(asked, read), _PARTITIONS_PER_STEP)
    cold = [found for partition, found in read.large if not partition.log.is_warm(found)]
    return await _after_reading_ahead(call.node, cold, response) if cold else response


def _ask(request: FetchRequest, call: Call) -> Steps[Asked]:
    node = call.node
    new_id = node.random.randrange(_SESSION_IDS) + 1 if request.session_epoch == NEW_SESSION else NO_SESSION
    return node.fetch_sessions.ask_in_steps(
        request, by_id=call.version >= TOPIC_IDS_SINCE, new_id=new_id, now_ms=node.clock.monotonic_ms()
    )


def _is_enough(request: FetchRequest, asked: Asked, read: _Read) -> bool:
    """Whether the answer need not wait for more."""
    return read.size >= request.min_bytes or read.refused or request.max_wait_ms <= 0 or not asked.wanted


async def _after_reading_ahead(node: "Node", cold: list[Slice], response: FetchResponse) -> FetchResponse:
    """Bring what is only on disk to memory in a thread: sending it would hold up everybody else until it is there."""
    await gather(*(node.store.disk.in_thread(found.read_ahead) for found in cold))
    return response


def _wait(request: FetchRequest, call: Call, asked: Asked, read: _Read) -> Waiter:
    partitions = [partition for key, _ in asked.wanted if (partition := _partition_or_none(call, key)) is not None]

    def look() -> FetchResponse:
        return at_once(_response(asked, at_once(_read(request, call.node, call.version, asked))))

    return Waiter(call.node.waiting_room, partitions, request.min_bytes - read.size, request.max_wait_ms, look)


def look(request: FetchRequest, node: "Node", version: int) -> FetchResponse:
    """What there is now for a request without a session."""
    asked = Asked(list(partitions_in(request)), None, is_full=True)
    return at_once(_response(asked, at_once(_read(request, node, version, asked))))


def _read(request: FetchRequest, node: "Node", version: int, asked: Asked) -> Steps[_Read]:
    committed_only = request.isolation_level == READ_COMMITTED
    left, size, refused = min(request.max_bytes, node.config[FETCH_MAX_BYTES]), 0, False
    found: list[tuple[FetchKey, PartitionData]] = []
    large: list[tuple[Partition, Slice]] = []
    for key, wanted in asked.wanted:
        try:
            partition = _partition(node, version, key)
            partition.check_epoch(wanted.current_leader_epoch)
            # The first batch of all comes whole, however large, so that every reader gets on.
            limit = min(wanted.partition_max_bytes, left)
            bound = partition.bound(committed_only=committed_only)
            records = partition.read(wanted.fetch_offset, limit, bound, whole_batch=size == 0)
            data = _data(partition, wanted, records, committed_only=committed_only)
        except Refused as refusal:
            refused = True
            data = _refused(key.partition, refusal.error)
        else:
            size += records.length
            left = max(left - records.length, 0)
            if records.length > WARM_MAX:
                large.append((partition, records))
        found.append((key, data))
        if len(found) % _PARTITIONS_PER_STEP == 0:
            yield
    return _Read(found, size, refused, large)


def _data(partition: Partition, wanted: FetchPartition, records: Slice, *, committed_only: bool) -> PartitionData:
    aborted = None
    if committed_only:
        found = partition.log.aborted_among(records, wanted.fetch_offset, partition.last_stable_offset)
        aborted = [AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset) for txn in found]
    return PartitionData(
        partition_index=wanted.partition,
        error_code=Error.NONE,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted_transactions=aborted,
        records=records,  # type: ignore[arg-type]  # A slice of a file stands for its bytes until it is sent.
    )


def _refused(index: int, error: Error) -> PartitionData:
    return PartitionData(
        partition_index=index, error_code=error, high_watermark=-1, aborted_transactions=None, records=b""
    )


def _response(asked: Asked, read: _Read) -> Steps[FetchResponse]:
    session, is_full = asked.session, asked.is_full
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for number, (key, data) in enumerate(read.partitions, start=1):
        if session is None or session.has_news(key, data) or is_full:
            topic = topics.get(key[:2])
            if topic is None:
                topic = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[])
                topics[key[:2]] = topic
            topic.partitions.append(data)
        if number % _PARTITIONS_PER_STEP == 0:
            yield
    return FetchResponse(throttle_time_ms=0, session_id=asked.session_id, responses=list(topics.values()))


def _partition(node: "Node", version: int, key: FetchKey) -> Partition:
    name = node.topic_name(key.topic_id) if version >= TOPIC_IDS_SINCE else key.topic
    return node.partition(name, key.partition, key.topic_id)


def _partition_or_none(call: Call, key: FetchKey) -> Partition | None:
    try:
        return _partition(call.node, call.version, key)
    except Refused:
        return None
