"""Producer state of partition leaders, and aborting a hanging transaction in one partition."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.client.client import Client
from ottla.client.core.names import TopicPartition
from ottla.client.leaders import ask_leaders
from ottla.rpc.errors import ClientError, refusal_of
from ottla.wire.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NONE_YET: Final = -1


class ProducerState(NamedTuple):
    """The state of a producer in one partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int  # -1 before the producer's first marker.
    txn_start_offset: int | None  # None while it has no open transaction in this partition.


async def describe_producers(
    client: Client, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, list[ProducerState]]:
    """The producers that each partition's leader remembers."""

    async def ask(
        node: int, asked: dict[TopicPartition, None]
    ) -> dict[TopicPartition, list[ProducerState] | ClientError]:
        topics: dict[str, TopicRequest] = {}
        for partition in asked:
            topic = topics.setdefault(partition.topic, TopicRequest(name=partition.topic, partition_indexes=[]))
            topic.partition_indexes.append(partition.partition)
        connection, answer = await client.call_node(node, DescribeProducersRequest(topics=list(topics.values())))
        assert isinstance(answer, DescribeProducersResponse)
        outcomes: dict[TopicPartition, list[ProducerState] | ClientError] = {}
        for result in answer.topics:
            for one in result.partitions:
                partition = TopicPartition(result.name, one.partition_index)
                refusal = refusal_of(one.error_code, connection.address, f"partition {partition}", one.error_message)
                outcomes[partition] = refusal or [
                    ProducerState(
                        state.producer_id,
                        state.producer_epoch,
                        state.last_sequence,
                        state.last_timestamp,
                        state.coordinator_epoch,
                        None if state.current_txn_start_offset == NONE_YET else state.current_txn_start_offset,
                    )
                    for state in one.active_producers
                ]
        return outcomes

    return await ask_leaders(client, dict.fromkeys(partitions), ask)


async def write_abort_marker(client: Client, partition: TopicPartition, producer: ProducerState) -> None:
    """Abort a transaction in one partition by a marker without its coordinator.

    Sent once: a second marker could hit the producer's next transaction.
    """
    led = await client.persist(lambda: client.metadata.leader(partition, timeout_ms=0))
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        # Before a producer's first marker the leader has no coordinator epoch, and accepts 0.
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    connection, answer = await client.call_node(led.leader, WriteTxnMarkersRequest(markers=[marker]))
    assert isinstance(answer, WriteTxnMarkersResponse)
    for result in answer.markers:
        for topic in result.topics:
            for one in topic.partitions:
                refusal = refusal_of(one.error_code, connection.address, f"partition {partition}")
                if refusal is not None:
                    raise refusal
