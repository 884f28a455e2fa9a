"""Fetch: read batches of the partitions led here, or wait until some are readable.

Rule 1: a reader that sends the epoch of its last batch gets the offset where its log and this one diverge (KIP-595),
        instead of records that would not follow its own.
Rule 2: a request from a replica is refused if no such replica is assigned, before anything is read for it.
Rule 3: any negative leader epoch means that the reader knows none.
"""

from asyncio import gather
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.network.backlog import at_once
from ottla.broker.network.dispatch import Call
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.waiters import Waiter
from ottla.config import FETCH_MAX_BYTES
from ottla.core.fetch_sessions import NEW_SESSION, NO_SESSION, FetchContext, FetchKey, partitions_in
from ottla.storage.slices import Slice
from ottla.wire.api.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.wire.codec import Steps
from ottla.wire.errors import Error, Refused

if TYPE_CHECKING:
    from ottla.broker.node import Node

TOPIC_IDS_SINCE: Final = 13
_REPLICA_STATE_SINCE: Final = 15
_LEADER_TOLD_SINCE: Final = 16
ISOLATION_LEVELS: Final = (0, 1)
READ_COMMITTED: Final = 1
CONSUMER: Final = -1
"""The replica id of a consumer."""
_FUTURE_LOG: Final = -3
"""The replica id of a log that moves between directories of the same broker: it reads open transactions too."""
WARM_MAX = 1 << 16
"""A read of at most this many bytes most likely returns records that were just written, and are in the page cache."""
_SESSION_IDS = 2**31 - 1
_NOT_THERE: Final = (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)
_LEADER_TOLD: Final = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)
_AT_ONCE_MAX = 128
"""A session with more partitions is read in turns."""
_PARTITIONS_PER_STEP = 16
_READ_COST = 4
"""The cost of reading a partition, in elements of the budget."""


class _Read(NamedTuple):
    partitions: list[tuple[FetchKey, PartitionData]]
    size: int
    is_final: bool
    """Whether the response must not wait: an error, a divergence, or records that continue in a later segment."""
    large: list[tuple[Partition, Slice]]
    """Records that may have to be read from the disk first."""


class _Terms(NamedTuple):
    """The parameters of a request that apply to all partitions, and its listener."""

    version: int
    listener: str
    replica_id: int
    isolation_level: int
    committed_only: bool
    min_bytes: int
    max_bytes: int
    max_wait_ms: int

    @classmethod
    def of(cls, request: FetchRequest, node: "Node", version: int, listener: str) -> "_Terms":
        replica_id = replica_id_of(request, version)
        max_bytes = min(request.max_bytes, node.config[FETCH_MAX_BYTES])
        return cls(
            version,
            listener,
            replica_id,
            request.isolation_level,
            request.isolation_level == READ_COMMITTED and replica_id != _FUTURE_LOG,
            min(request.min_bytes, max_bytes),
            max_bytes,
            request.max_wait_ms,
        )


def replica_id_of(request: FetchRequest, version: int) -> int:
    if version < _REPLICA_STATE_SINCE:
        return request.replica_id
    return CONSUMER if request.replica_state is None else request.replica_state.replica_id


def fetch(request: FetchRequest, call: Call) -> FetchResponse | Awaitable[FetchResponse] | Waiter:
    if call.is_wide or call.node.fetch_sessions.size_of(request.session_id) > _AT_ONCE_MAX:
        return _fetch_in_turns(request, call)
    try:
        asked = at_once(_ask(request, call))
    except Refused as refusal:
        return FetchResponse(throttle_time_ms=0, error_code=refusal.error, responses=[])
    terms = _Terms.of(request, call.node, call.version, call.listener)
    read = at_once(_read(terms, call.node, asked))
    if _is_enough(terms, asked, read):
        response = at_once(_response(asked, read, terms, call.node))
        cold = [found for partition, found in read.large if not partition.log.is_warm(found)]
        return _after_reading_ahead(call.node, cold, response) if cold else response
    return _wait(terms, call, asked, read)


async def _fetch_in_turns(request: FetchRequest, call: Call) -> FetchResponse:
    """Handle a Fetch of very many partitions in several turns, so that other requests run in between."""
    node, budget = call.node, call.budget
    try:
        asked = await budget.run(_ask(request, call), _PARTITIONS_PER_STEP)
    except Refused as refusal:
        return FetchResponse(throttle_time_ms=0, error_code=refusal.error, responses=[])
    terms = _Terms.of(request, node, call.version, call.listener)
    read = await budget.run(_read(terms, node, asked), _READ_COST * _PARTITIONS_PER_STEP)
    if not _is_enough(terms, asked, read):
        await _wait(terms, call, asked, read)
        read = await budget.run(_read(terms, node, asked), _READ_COST * _PARTITIONS_PER_STEP)
    response = await budget.run(_response(asked, read, terms, node), _PARTITIONS_PER_STEP)
    cold = [found for partition, found in read.large if not partition.log.is_warm(found)]
    return await _after_reading_ahead(node, cold, response) if cold else response


def _ask(request: FetchRequest, call: Call) -> Steps[FetchContext]:
    node = call.node
    new_id = node.random.randrange(_SESSION_IDS) + 1 if request.session_epoch == NEW_SESSION else NO_SESSION
    return node.fetch_sessions.ask_in_steps(
        request, by_id=call.version >= TOPIC_IDS_SINCE, new_id=new_id, now_ms=node.clock.monotonic_ms()
    )


def _is_enough(terms: _Terms, asked: FetchContext, read: _Read) -> bool:
    """Whether the response need not wait for more records."""
    return read.size >= terms.min_bytes or read.is_final or terms.max_wait_ms <= 0 or not asked.wanted


async def _after_reading_ahead(node: "Node", cold: list[Slice], response: FetchResponse) -> FetchResponse:
    """Load cold records into the page cache in a thread: sending them would block the event loop."""
    await gather(*(node.store.disk.in_thread(found.read_ahead) for found in cold))
    return response


def _wait(terms: _Terms, call: Call, asked: FetchContext, read: _Read) -> Waiter:
    partitions = [partition for key, _ in asked.wanted if (partition := _partition_or_none(call, key)) is not None]

    def look() -> FetchResponse:
        return at_once(_response(asked, at_once(_read(terms, call.node, asked)), terms, call.node))

    return Waiter(
        call.node.waiting_room,
        partitions,
        terms.min_bytes - read.size,
        terms.max_wait_ms,
        look,
        committed_only=terms.committed_only,
    )


def look(request: FetchRequest, node: "Node", version: int, listener: str) -> FetchResponse:
    """Handle a request without a session at once; returns the response with the records that are readable now."""
    asked = FetchContext(list(partitions_in(request)), None, is_full=True)
    terms = _Terms.of(request, node, version, listener)
    return at_once(_response(asked, at_once(_read(terms, node, asked)), terms, node))


def _read(terms: _Terms, node: "Node", asked: FetchContext) -> Steps[_Read]:
    left, size, is_final = terms.max_bytes, 0, False
    found: list[tuple[FetchKey, PartitionData]] = []
    large: list[tuple[Partition, Slice]] = []
    for key, wanted in asked.wanted:
        try:
            partition = _partition(node, terms.version, key)
            if terms.isolation_level not in ISOLATION_LEVELS:
                raise Refused(Error.INVALID_REQUEST, f"there is no isolation level {terms.isolation_level}")
            _check_reader(partition, terms.replica_id, wanted.current_leader_epoch)
            bound = partition.bound(committed_only=terms.committed_only)
            parting = None
            if wanted.last_fetched_epoch >= 0:
                parting = partition.parting(wanted.last_fetched_epoch, wanted.fetch_offset)
            if parting is None:
                # The first batch of the response is returned whole, however large, so that every reader advances.
                limit = min(wanted.partition_max_bytes, left)
                records = partition.read(wanted.fetch_offset, limit, bound, whole_batch=size == 0)
                if limit < 0 and records.length:
                    raise Refused(Error.INVALID_FETCH_SIZE, f"{partition.name}: at most {limit} bytes are asked for")
                is_final = is_final or partition.goes_on(wanted.fetch_offset, bound)
            else:
                records = Slice(None, 0, 0, wanted.fetch_offset)
            data = _data(partition, wanted, records, committed_only=terms.committed_only and parting is None)
            if parting is not None:
                data.diverging_epoch = EpochEndOffset(epoch=parting.epoch, end_offset=parting.start_offset)
                is_final = True
        except Refused as refusal:
            is_final = True
            data = _refused(key.partition, refusal.error)
        else:
            size += records.length
            left = max(left - records.length, 0)
            if records.length > WARM_MAX:
                large.append((partition, records))
        found.append((key, data))
        if len(found) % _PARTITIONS_PER_STEP == 0:
            yield
    return _Read(found, size, is_final, large)


def _check_reader(partition: Partition, replica_id: int, leader_epoch: int) -> None:
    if leader_epoch >= 0:
        partition.check_epoch(leader_epoch)
    if replica_id >= 0:
        # Rule 2. A replica that knows the leader epoch may be ahead of this broker's metadata, and retries.
        error = Error.UNKNOWN_LEADER_EPOCH if leader_epoch >= 0 else Error.NOT_LEADER_OR_FOLLOWER
        raise Refused(error, f"{partition.name}: broker {replica_id} has no replica of it")


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
        partition_index=index,
        error_code=error,
        high_watermark=-1,
        # As in Kafka, the list is null if a log was read.
        aborted_transactions=[] if error in _NOT_THERE else None,
        records=b"",
    )


def _response(asked: FetchContext, read: _Read, terms: _Terms, node: "Node") -> Steps[FetchResponse]:
    session, is_full = asked.session, asked.is_full
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    endpoints: dict[int, NodeEndpoint] = {}
    for number, (key, data) in enumerate(read.partitions, start=1):
        if session is None or session.has_news(key, data) or is_full:
            topic = topics.get(key[:2])
            if topic is None:
                topic = FetchableTopicResponse(topic=key.topic, topic_id=key.topic_id, partitions=[])
                topics[key[:2]] = topic
            topic.partitions.append(data)
            if data.error_code in _LEADER_TOLD and terms.version >= _LEADER_TOLD_SINCE:
                _tell_leader(data, key, node, terms, endpoints)
        if number % _PARTITIONS_PER_STEP == 0:
            yield
    return FetchResponse(
        throttle_time_ms=0,
        session_id=asked.session_id,
        responses=list(topics.values()),
        node_endpoints=list(endpoints.values()),
    )


def _tell_leader(
    data: PartitionData, key: FetchKey, node: "Node", terms: _Terms, endpoints: dict[int, NodeEndpoint]
) -> None:
    """Add the leader and its address to the response for a client that asked the wrong broker, so that it need not
    request metadata (KIP-951). Brokers get no address, because they know each other's."""
    image = node.metadata.image
    found = image.partition(node.topic_name(key.topic_id) or key.topic, key.partition)
    if found is None:
        return
    data.current_leader = LeaderIdAndEpoch(leader_id=found.leader, leader_epoch=found.leader_epoch)
    broker = image.brokers.get(found.leader)
    endpoint = None if broker is None or broker.fenced else broker.endpoint(terms.listener)
    if terms.replica_id < 0 and broker is not None and endpoint is not None:
        endpoints[found.leader] = NodeEndpoint(
            node_id=found.leader, host=endpoint.host, port=endpoint.port, rack=broker.rack
        )


def _partition(node: "Node", version: int, key: FetchKey) -> Partition:
    name = node.topic_name(key.topic_id) if version >= TOPIC_IDS_SINCE else key.topic
    return node.partition(name, key.partition, key.topic_id)


def _partition_or_none(call: Call, key: FetchKey) -> Partition | None:
    try:
        return _partition(call.node, call.version, key)
    except Refused:
        return None
