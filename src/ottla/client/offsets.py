"""Look up offsets by time, and the first and last offsets."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.client import Client
from ottla.client.core.names import TopicPartition
from ottla.client.leaders import ask_leaders
from ottla.rpc.errors import ClientError, Declined, error_of
from ottla.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.wire.errors import Error

# Special values; a time is milliseconds since 1970.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3


class OffsetAt(NamedTuple):
    """The result; offset and timestamp are -1 if no record is that late."""

    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    client: Client, moments: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, OffsetAt]:
    """The first offset at or after each time. `committed`: the end is where the first open transaction begins."""

    async def ask(node: int, asked: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetAt | ClientError]:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=1 if committed else 0,
            topics=_topics(client, asked),
            timeout_ms=client.request_timeout_ms,
        )
        connection, answer = await client.call_node(node, request)
        assert isinstance(answer, ListOffsetsResponse)
        outcomes: dict[TopicPartition, OffsetAt | ClientError] = {}
        for topic in answer.topics:
            for found in topic.partitions:
                partition = TopicPartition(topic.name, found.partition_index)
                error = error_of(found.error_code)
                if error is Error.NONE:
                    outcomes[partition] = _found(found)
                else:
                    outcomes[partition] = Declined(error, broker=connection.address, subject=f"partition {partition}")
        return outcomes

    return await ask_leaders(client, moments, ask)


def _found(answer: ListOffsetsPartitionResponse) -> OffsetAt:
    return OffsetAt(answer.offset, answer.timestamp, answer.leader_epoch)


def _topics(client: Client, asked: Mapping[TopicPartition, int]) -> list[ListOffsetsTopic]:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, moment in asked.items():
        known = client.cluster.partition(partition)
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic, partitions=[]))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=-1 if known is None else known.leader_epoch,
                timestamp=moment,
            )
        )
    return list(topics.values())
