"""Produce as it goes over the wire: batches in, and an answer for each partition out."""

from collections.abc import Sequence

from ottla.client.client import Client
from ottla.client.core.accumulator import Batch, by_topic
from ottla.client.core.cluster import Cluster
from ottla.client.core.names import TopicPartition
from ottla.kernel import Codec
from ottla.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


def produce_request(
    client: Client, batches: Sequence[Batch], *, acks: int, codec: Codec, level: int | None
) -> ProduceRequest:
    """With the topics' names and ids: which of them is sent depends on the version."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=client.request_timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=client.cluster.topic_id(topic),
                partition_data=[
                    PartitionProduceData(index=batch.partition.partition, records=batch.build(codec, level))
                    for batch in of_topic
                ],
            )
            for topic, of_topic in by_topic(batches).items()
        ],
    )


def answers_by_partition(answer: ProduceResponse, cluster: Cluster) -> dict[TopicPartition, PartitionProduceResponse]:
    found: dict[TopicPartition, PartitionProduceResponse] = {}
    for topic in answer.responses:
        name = topic.name or cluster.name_of(topic.topic_id) or ""
        found.update({TopicPartition(name, one.index): one for one in topic.partition_responses})
    return found
