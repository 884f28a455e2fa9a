"""Produce requests as clients send them."""

from lane_home import TOPIC, TOPIC_ID

from ottla import kernel
from ottla.kernel import Record
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.frame import encode_request

GOOD = bytes(kernel.build_batch([Record(0, 1_000, None, b"value"), Record(1, 1_001, b"key", b"more")]))


def frame_of(
    records: bytes | None = GOOD,
    *,
    version: int = 13,
    correlation_id: int = 7,
    acks: int = -1,
    topic: str = TOPIC,
    index: int = 0,
    client_id: str = "c",
) -> bytes:
    partition = PartitionProduceData(index=index, records=records)
    data = TopicProduceData(name=topic, topic_id=TOPIC_ID, partition_data=[partition])
    if version >= 13:
        data.name = ""
    else:
        data.topic_id = bytes(16)
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
    return b"".join(encode_request(request, version, correlation_id, client_id))[4:]
