"""The short way of Produce requests that are like one before them.

A producer sends the same request over and over: only the correlation id and the records differ. So the bytes before the
records tell what is asked for, once a request with the same bytes was decoded. Those that have arrived together are
taken together: checked in one call of the kernel, written in one call of the system.

Rule 1: equal bytes mean the same. A lane serves requests whose every byte but the correlation id, the records and
        their length equals that of one that was decoded; only then can no tagged field be there.
Rule 2: what may have changed since is asked again: whether the partition is still this broker's, and its disk well.
Rule 3: whatever is out of the ordinary goes the long way (`handlers/produce`): transactions, batches that were sent
        before or are refused, topics whose records are synced before they are acknowledged, partitions with too few
        replicas in sync. Once the log was asked to append, there is no way back.
Rule 4: what is taken is written and answered a little later, together with what others sent (`appends`).
Rule 5: the answer is that of the long way: encoded once, and the places of what changes found in it.
"""

from struct import Struct
from typing import TYPE_CHECKING

from ottla.broker.handlers.produce import refused
from ottla.broker.handlers.transactional_produce import TOPIC_IDS_SINCE
from ottla.broker.known_partition import KnownPartition
from ottla.core.metadata.names import is_internal
from ottla.kernel import Exchange
from ottla.wire.api.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.errors import Error, Refused
from ottla.wire.frame import encode_response
from ottla.wire.runtime import uvarint
from ottla.wire.schema import message_of

if TYPE_CHECKING:
    from ottla.broker.appends import Appends, Asker
    from ottla.broker.node import Node

_SIZE_BYTES = 4
_HEAD = Struct(">hhi")
_KIND_BYTES = 4
"""API key and version: what comes before the correlation id."""
_CORRELATION_ID = Struct(">i")
_CORRELATION_ID_AT = 4
_CHANGING = Struct(">qqq")
"""Base offset, log append time and log start offset: they stand next to each other in an answer."""
_PROBE = (0x0123456789ABCDEF, 0x1122334455667788, 0x0FEDCBA987654321)
_ENDS = bytes(3)
"""Of a partition, its topic and the request, each without tagged fields."""
_LANES_MAX = 64


class ProduceLanes:
    """The lanes of one connection."""

    def __init__(self, node: "Node", appends: "Appends") -> None:
        self._node = node
        self._appends = appends
        self.version = -1
        self._key_end = _HEAD.size
        """What tells a request lies before it. It is the same for all partitions of a topic; who goes back and forth
        between topics whose names are not equally long goes the long way."""
        self._lanes: dict[bytes, _Lane] = {}

    def take(self, asker: "Asker", data: memoryview, position: int) -> int | None:
        """Where the requests end that are taken from `position` on, where the size of the first stands; None where it
        has to go the long way."""
        start = position + _SIZE_BYTES
        lane = self._lanes.get(data[start + _HEAD.size : start + self._key_end].tobytes())
        if lane is None:
            return None
        try:
            return self._appends.take(asker, lane, lane.known.on(self._node), data, position)
        except Refused:
            return None  # Nothing was changed: the long way gives the reason.

    def learn(self, frame: memoryview, request: ProduceRequest, version: int) -> None:
        """A request went the long way; the second of its kind opens a lane."""
        key_end = _key_end(frame, request, version)
        if key_end is None:
            return
        if (key_end, version) != (self._key_end, self.version):
            self._key_end, self.version = key_end, version
            self._lanes.clear()
            return
        topic = request.topic_data[0]
        name = self._node.topic_name(topic.topic_id) if version >= TOPIC_IDS_SINCE else topic.name
        if name is not None and not is_internal(name) and len(self._lanes) < _LANES_MAX:
            key = frame[_HEAD.size : key_end].tobytes()
            self._lanes[key] = _Lane(request, version, frame[:_KIND_BYTES].tobytes() + key)


def _key_end(frame: memoryview, request: ProduceRequest, version: int) -> int | None:
    """Where the length of the records stands in a request that a lane may serve."""
    if request.transactional_id is not None or request.acks not in (1, -1):
        return None
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    records = request.topic_data[0].partition_data[0].records
    if not records or not message_of(ProduceRequest).is_flexible(version):
        return None
    length = uvarint(len(records) + 1)
    end = len(frame) - len(_ENDS)
    begin = end - len(records)
    # Bytes that nobody reads may follow a request.
    return begin - len(length) if frame[begin - len(length) : begin] == length and frame[end:] == _ENDS else None


class _Lane:
    def __init__(self, request: ProduceRequest, version: int, pattern: bytes) -> None:
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        by_id = version >= TOPIC_IDS_SINCE
        self.known = KnownPartition(topic.name, topic.topic_id, partition.index, by_id=by_id)
        self._version = version
        base_offset, append_time, log_start = _PROBE
        probe = PartitionProduceResponse(
            index=partition.index,
            error_code=Error.NONE,
            base_offset=base_offset,
            log_append_time_ms=append_time,
            log_start_offset=log_start,
        )
        answer = self._encoded(probe, 0)
        self.exchange = Exchange(pattern, answer, answer.index(_CHANGING.pack(*_PROBE)))

    def _encoded(self, partition: PartitionProduceResponse, correlation_id: int) -> bytes:
        known = self.known
        topic = TopicProduceResponse(name=known.topic, topic_id=known.topic_id, partition_responses=[partition])
        return b"".join(encode_response(ProduceResponse(responses=[topic]), self._version, correlation_id))

    def refusals(self, refusal: Refused, answers: bytes) -> bytes:
        """What is answered instead."""
        error, size = refused(self.known.index, refusal), len(self.exchange.answer)
        return b"".join(
            [
                self._encoded(error, _CORRELATION_ID.unpack_from(answers, at + _CORRELATION_ID_AT)[0])
                for at in range(0, len(answers), size)
            ]
        )
