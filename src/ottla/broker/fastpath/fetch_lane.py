"""The fast path of a Fetch request that repeats an earlier one.

A consumer of one partition sends the same request over and over: only the correlation id and the offset differ. So the
other bytes identify the request, once a request with the same bytes was decoded.

Rule 1: equal bytes have equal meaning. A lane serves a request if all its bytes except the correlation id and the
        offset equal those of a decoded request, and if the codec would have encoded that request to these bytes.
Rule 2: conditions that may have changed since then are checked again: whether the topic exists, whether this broker
        leads and in which epoch, and how long a response may be.
Rule 3: all other requests are handled the normal way (`handlers/fetch`): sessions, replicas, readers that send the
        epoch of their last batch, refusals, aborted transactions, records that have to be read from the disk first.
        Reading changes nothing, so a lane can give up a request at any time.
Rule 4: the response is the same as that of the normal way. It is encoded once, with probe values that show the
        positions of the changing fields.
"""

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from ottla.broker.fastpath.known_partition import KnownPartition
from ottla.broker.handlers.fetch import (
    CONSUMER,
    ISOLATION_LEVELS,
    READ_COMMITTED,
    TOPIC_IDS_SINCE,
    WARM_MAX,
    look,
    replica_id_of,
)
from ottla.broker.network.dispatch import Frame
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.waiters import Waiter
from ottla.config import FETCH_MAX_BYTES
from ottla.core.fetch_sessions import FINAL, NO_SESSION
from ottla.storage.slices import SHARED_MAX, Slice
from ottla.wire.api.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.wire.errors import Error, Refused
from ottla.wire.frame import decode_request, encode_request, encode_response
from ottla.wire.runtime import uvarint
from ottla.wire.schema import message_of

if TYPE_CHECKING:
    from ottla.broker.node import Node

_HEAD = Struct(">4si")
"""API key and version, then the correlation id."""
_SIZE_BYTES = 4
_OFFSET = Struct(">q")
_CHANGING = Struct(">qqq")
"""High watermark, last stable offset and log start offset, which are adjacent in a response."""
_PROBE = (0x0123456789ABCDEF, 0x1122334455667788, 0x0FEDCBA987654321)
_PROBE_RECORDS = b"any records here"
_LANES_MAX = 64
_ATTEMPTS_MAX = 256
"""After this many ordinary requests without a lane, `learn` no longer checks whether a lane could serve them."""


class FetchLanes:
    """The Fetch lanes of one connection. Each lane serves the repeated requests of one layout."""

    def __init__(self, node: "Node", listener: str) -> None:
        self._node = node
        self._listener = listener
        self.version = -1
        self._attempts = 0
        self._layout = _HEAD
        """Which bytes of a request are fixed and which vary. All partitions of a topic have the same layout. If a
        consumer alternates between topics with names of different lengths, its requests are handled the normal way."""
        self._lanes: dict[tuple[bytes, bytes, bytes], _Lane] = {}

    def take(self, frame: memoryview) -> Frame | Waiter | None:
        """Serve a request; returns the response or a waiter for it, None if it must be handled the normal way."""
        if len(frame) != self._layout.size or not self._lanes:
            return None
        head, correlation_id, before, offset, after = self._layout.unpack(frame)
        lane = self._lanes.get((head, before, after))
        return lane.take(self._node, correlation_id, offset) if lane is not None else None

    def learn(self, frame: memoryview, request: FetchRequest, version: int) -> None:
        """Note a request that was handled the normal way; the second one with the same layout opens a lane."""
        if self._attempts >= _ATTEMPTS_MAX or not _is_ordinary(request, version):
            return
        self._attempts += 1
        layout = _layout(frame)
        if layout is None:
            return
        if layout.format != self._layout.format:
            self._layout, self.version = layout, version
            self._lanes.clear()
        elif len(self._lanes) < _LANES_MAX:
            head, _, before, _, after = layout.unpack(frame)
            self._lanes[head, before, after] = _Lane(request, version, self._listener)


def _is_ordinary(request: FetchRequest, version: int) -> bool:
    """Whether a lane may serve this request."""
    if (
        not message_of(FetchRequest).is_flexible(version)
        or (request.session_id, request.session_epoch) != (NO_SESSION, FINAL)
        or request.forgotten_topics_data
        or len(request.topics) != 1
        or len(request.topics[0].partitions) != 1
        or replica_id_of(request, version) != CONSUMER
        or request.isolation_level not in ISOLATION_LEVELS
    ):
        return False
    (partition,) = request.topics[0].partitions
    return partition.last_fetched_epoch < 0 and min(partition.partition_max_bytes, request.max_bytes) >= 0


def _layout(frame: memoryview) -> Struct | None:
    """The layout of a request for one partition, which shows where the offset is. None if the codec would have encoded
    the request differently."""
    request = decode_request(frame)
    (partition,) = request.body.topics[0].partitions
    asked, probe = _OFFSET.pack(partition.fetch_offset), _OFFSET.pack(_PROBE[0])
    partition.fetch_offset = _PROBE[0]
    written = b"".join(encode_request(request.body, request.version, request.correlation_id, request.client_id))
    before, found, after = written[_SIZE_BYTES:].partition(probe)
    if not found or before + asked + after != frame:
        return None
    return Struct(f">4si{len(before) - _HEAD.size}s{_OFFSET.format[1:]}{len(after)}s")


class _Lane:
    def __init__(self, request: FetchRequest, version: int, listener: str) -> None:
        (topic,) = request.topics
        (partition,) = topic.partitions
        self._request, self._version, self._listener = request, version, listener
        by_id = version >= TOPIC_IDS_SINCE
        self._known = KnownPartition(topic.topic, topic.topic_id, partition.partition, by_id=by_id)
        self._leader_epoch = partition.current_leader_epoch
        self._limit = min(partition.partition_max_bytes, request.max_bytes)
        self._min_bytes = min(request.min_bytes, request.max_bytes)
        self._committed_only = request.isolation_level == READ_COMMITTED
        probe = PartitionData(
            partition_index=partition.partition,
            error_code=Error.NONE,
            high_watermark=_PROBE[0],
            last_stable_offset=_PROBE[1],
            log_start_offset=_PROBE[2],
            aborted_transactions=[] if self._committed_only else None,
            records=_PROBE_RECORDS,
        )
        answered = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[probe])
        response = FetchResponse(throttle_time_ms=0, session_id=NO_SESSION, responses=[answered])
        written = b"".join(encode_response(response, version, 0))
        before, self._after = written.split(_PROBE_RECORDS)
        head, middle = before.removesuffix(uvarint(len(_PROBE_RECORDS) + 1)).split(_CHANGING.pack(*_PROBE))
        self._head, self._middle = head[_HEAD.size :], middle
        packed = Struct(f">ii{len(self._head)}s{_CHANGING.format[1:]}{len(middle)}s")
        self._pack, self._fixed_size = packed.pack, packed.size - _SIZE_BYTES + len(self._after)

    def take(self, node: "Node", correlation_id: int, offset: int) -> Frame | Waiter | None:
        try:
            partition, records = self._read(node, offset)
            if records is None:
                return None
            if records.length < self._min_bytes and self._request.max_wait_ms > 0:
                waiter = self._waiter(node, partition, records, correlation_id, offset)
                if waiter is not None:
                    return waiter
            if records.length > WARM_MAX and not partition.log.is_warm(records):
                return None
            return self._frame(partition, records, correlation_id)
        except Refused:
            return None

    def _waiter(
        self, node: "Node", partition: Partition, records: Slice, correlation_id: int, offset: int
    ) -> Waiter | None:
        """A waiter for more bytes; None if one response cannot contain more."""
        missing = min(self._min_bytes, node.config[FETCH_MAX_BYTES]) - records.length
        if missing <= 0 or partition.goes_on(offset, self._bound(partition)):
            return None
        looks = partial(self._look, node, correlation_id, offset)
        wait_ms, committed_only = self._request.max_wait_ms, self._committed_only
        return Waiter(node.waiting_room, (partition,), missing, wait_ms, looks, committed_only=committed_only)

    def _look(self, node: "Node", correlation_id: int, offset: int) -> Frame:
        """Read again after the wait; returns the response with the records that are readable now, however few."""
        try:
            partition, records = self._read(node, offset)
            if records is not None:
                return self._frame(partition, records, correlation_id)
        except Refused:
            pass  # The normal handler, called below, puts the error into the response.
        response = look(self._request_from(offset), node, self._version, self._listener)
        return encode_response(response, self._version, correlation_id)

    def _read(self, node: "Node", offset: int) -> tuple[Partition, Slice | None]:
        """The partition and its records; None instead of records if the response must list aborted transactions."""
        partition = self._known.on(node)
        if self._leader_epoch >= 0:
            partition.check_epoch(self._leader_epoch)
        limit = min(self._limit, node.config[FETCH_MAX_BYTES])
        bound = self._bound(partition)
        records = partition.read(offset, limit, bound, whole_batch=True)
        if self._committed_only and records.length and partition.log.aborted_among(records, offset, bound):
            return partition, None
        return partition, records

    def _bound(self, partition: Partition) -> int:
        return partition.bound(committed_only=self._committed_only)

    def _frame(self, partition: Partition, records: Slice, correlation_id: int) -> Frame:
        length = records.length
        prefix = uvarint(length + 1)
        log = partition.log.state
        head = self._pack(
            self._fixed_size + len(prefix) + length,
            correlation_id,
            self._head,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            self._middle,
        )
        if length <= SHARED_MAX:
            return [b"".join((head, prefix, records.read(), self._after))]
        return [head + prefix, records, self._after]

    def _request_from(self, offset: int) -> FetchRequest:
        partition = FetchPartition(
            partition=self._known.index,
            current_leader_epoch=self._leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=self._request.topics[0].partitions[0].partition_max_bytes,
        )
        return FetchRequest(
            max_wait_ms=self._request.max_wait_ms,
            min_bytes=self._request.min_bytes,
            max_bytes=self._request.max_bytes,
            isolation_level=self._request.isolation_level,
            topics=[FetchTopic(topic=self._known.topic, topic_id=self._known.topic_id, partitions=[partition])],
        )
