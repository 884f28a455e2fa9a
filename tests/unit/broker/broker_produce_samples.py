"""Produce requests as clients send them."""

from collections.abc import Sequence

from lane_home import OTHER, OTHER_ID, TOPIC, TOPIC_ID

from ottla import kernel
from ottla.kernel import Record
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.frame import encode_request

GOOD = bytes(kernel.build_batch([Record(0, 1_000, None, b"value"), Record(1, 1_001, b"key", b"more")]))
IDS = {TOPIC: TOPIC_ID, OTHER: OTHER_ID}


def frame_of(
    records: bytes | None = GOOD,
    *,
    version: int = 13,
    correlation_id: int = 7,
    acks: int = -1,
    topic: str = TOPIC,
    index: int = 0,
    client_id: str | None = "c",
) -> bytes:
    named = [(topic, [(index, records)])]
    return frame_for(named, version=version, correlation_id=correlation_id, acks=acks, client_id=client_id)


def frame_for(
    topics: Sequence[tuple[str, Sequence[tuple[int, bytes | None]]]],
    *,
    version: int = 13,
    correlation_id: int = 7,
    acks: int = -1,
    client_id: str | None = "c",
    transactional_id: str | None = None,
) -> bytes:
    """For any partitions, each with its records."""
    data = [
        TopicProduceData(
            name="" if version >= 13 else topic,
            topic_id=IDS.get(topic, TOPIC_ID) if version >= 13 else bytes(16),
            partition_data=[PartitionProduceData(index=index, records=records) for index, records in partitions],
        )
        for topic, partitions in topics
    ]
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=data)
    return b"".join(encode_request(request, version, correlation_id, client_id))[4:]
