"""Fetch: read batches of the partitions led here, or wait until there are some."""

from asyncio import gather
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, NamedTuple, cast

from ottla.broker.dispatch import Call
from ottla.broker.partition import Partition
from ottla.broker.waiters import Waiter
from ottla.config import FETCH_MAX_BYTES
from ottla.core.fetch_sessions import NEW_SESSION, NO_SESSION, Asked, FetchKey
from ottla.storage.slices import Slice
from ottla.wire.api.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node

_TOPIC_IDS_SINCE = 13
_READ_COMMITTED = 1
_WARM_MAX = 1 << 16
"""Whoever asks for so little most likely reads what has just been written."""
_SESSION_IDS = 2**31 - 1


class _Read(NamedTuple):
    partitions: list[tuple[FetchKey, PartitionData]]
    size: int
    refused: bool

    def slices(self) -> list[Slice]:
        return [found for _, data in self.partitions if isinstance(found := cast(object, data.records), Slice)]


def fetch(request: FetchRequest, call: Call) -> FetchResponse | Awaitable[FetchResponse] | Waiter:
    node = call.node
    by_id = call.version >= _TOPIC_IDS_SINCE
    try:
        new_id = node.random.randrange(_SESSION_IDS) + 1 if request.session_epoch == NEW_SESSION else NO_SESSION
        asked = node.fetch_sessions.ask(request, by_id=by_id, new_id=new_id, now_ms=node.clock.monotonic_ms())
    except Refused as refusal:
        return FetchResponse(throttle_time_ms=0, error_code=refusal.error, responses=[])
    read = _read(request, call, asked)
    if read.size >= request.min_bytes or read.refused or request.max_wait_ms <= 0 or not asked.wanted:
        response = _response(asked, read)
        cold = [found for found in read.slices() if found.length > _WARM_MAX and not found.is_warm()]
        return _after_reading_ahead(node, cold, response) if cold else response
    return _wait(request, call, asked, read)


async def _after_reading_ahead(node: "Node", cold: list[Slice], response: FetchResponse) -> FetchResponse:
    """Bring what is only on disk to memory in a thread: sending it would hold up everybody else until it is there."""
    await gather(*(node.store.disk.in_thread(found.read_ahead) for found in cold))
    return response


def _wait(request: FetchRequest, call: Call, asked: Asked, read: _Read) -> Waiter:
    partitions = [partition for key, _ in asked.wanted if (partition := _partition_or_none(call, key)) is not None]

    def look() -> FetchResponse:
        return _response(asked, _read(request, call, asked))

    return Waiter(partitions, request.min_bytes - read.size, request.max_wait_ms, look, call.connection.loop)


def _read(request: FetchRequest, call: Call, asked: Asked) -> _Read:
    committed_only = request.isolation_level == _READ_COMMITTED
    left, size, refused = min(request.max_bytes, call.node.config[FETCH_MAX_BYTES]), 0, False
    found: list[tuple[FetchKey, PartitionData]] = []
    for key, wanted in asked.wanted:
        try:
            partition = _partition(call, key)
            partition.check_epoch(wanted.current_leader_epoch)
            # The first batch of all comes whole, however large, so that every reader gets on.
            limit = min(wanted.partition_max_bytes, left)
            data = _read_partition(partition, wanted, limit, committed_only=committed_only, whole_batch=size == 0)
        except Refused as refusal:
            refused = True
            data = _refused(key.partition, refusal.error)
        else:
            length = len(data.records) if data.records is not None else 0
            size += length
            left = max(left - length, 0)
        found.append((key, data))
    return _Read(found, size, refused)


def _read_partition(
    partition: Partition, wanted: FetchPartition, limit: int, *, committed_only: bool, whole_batch: bool
) -> PartitionData:
    records = partition.read(wanted.fetch_offset, limit, committed_only=committed_only, whole_batch=whole_batch)
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


def _response(asked: Asked, read: _Read) -> FetchResponse:
    session = asked.session
    told: Iterable[tuple[FetchKey, PartitionData]] = read.partitions
    if session is not None:
        news = [(key, data) for key, data in read.partitions if session.has_news(key, data)]
        told = read.partitions if asked.is_full else news
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    for key, data in told:
        topic = topics.get(key[:2])
        if topic is None:
            topic = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[])
            topics[key[:2]] = topic
        topic.partitions.append(data)
    return FetchResponse(throttle_time_ms=0, session_id=asked.session_id, responses=list(topics.values()))


def _partition(call: Call, key: FetchKey) -> Partition:
    node = call.node
    name = node.topic_name(key.topic_id) if call.version >= _TOPIC_IDS_SINCE else key.topic
    return node.partition(name, key.partition, key.topic_id)


def _partition_or_none(call: Call, key: FetchKey) -> Partition | None:
    try:
        return _partition(call, key)
    except Refused:
        return None
