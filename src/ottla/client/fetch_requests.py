"""Builds and sends one Fetch request, and reads the data or error of each partition from the response.

Used by the consumer's `Fetcher` and by the source of data pipelines (`pipelines/source/topic_fetcher`). The fetcher
serves many partitions of a running consumer, with fetch sessions and its own retries. The source reads one range of one
partition to its end, without a session, and reports missing offsets as a loss.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.client import Client
from ottla.client.core.names import TopicPartition
from ottla.client.core.session import NO_SESSION, PartitionFetch
from ottla.kernel import Aborted
from ottla.rpc.addresses import Address
from ottla.rpc.errors import Declined, refusal_of
from ottla.wire.api.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from ottla.wire.errors import Error

CHANNEL: Final = "fetch"
"""Fetches have their own connections: while a broker waits for records, it sends no other response on a connection."""
WITHOUT_SESSION: Final = -1
_WITH_NAMES: Final = 12  # Last version of Fetch that names topics; later ones carry their ids.
_READ_COMMITTED: Final = 1
_READ_UNCOMMITTED: Final = 0


class FetchLimits(NamedTuple):
    """The time that a broker may wait for `bytes_min`, and the largest size of the response."""

    wait_ms_max: int
    bytes_min: int
    bytes_max: int


def fetch_request(
    partitions: Mapping[TopicPartition, PartitionFetch],
    limits: FetchLimits,
    *,
    committed: bool,
    session_id: int = NO_SESSION,
    session_epoch: int = WITHOUT_SESSION,
    forgotten: Mapping[TopicPartition, PartitionFetch] | None = None,
) -> FetchRequest:
    """The request for these partitions. A broker serves them in this order until the response is full."""
    return FetchRequest(
        max_wait_ms=limits.wait_ms_max,
        min_bytes=limits.bytes_min,
        max_bytes=limits.bytes_max,
        isolation_level=_READ_COMMITTED if committed else _READ_UNCOMMITTED,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=_fetch_topics(partitions),
        forgotten_topics_data=_forgotten_topics(forgotten or {}),
    )


async def send_fetch(
    client: Client, node: int, request: FetchRequest, *, by_name: bool, subject: str
) -> tuple[FetchResponse, Address]:
    """Send the request; returns the response and the broker's address. Raises ClientError, also for an error code of
    the whole response.

    `by_name`: the id of some topic is not known, so the version must be one that names topics.
    """
    connection = await client.brokers.node(node, CHANNEL)
    answer: FetchResponse = await connection.call(
        request,
        timeout_ms=client.request_timeout_ms + request.max_wait_ms,
        at_most=_WITH_NAMES if by_name else None,
    )
    refusal = refusal_of(answer.error_code, connection.address, subject)
    if refusal is not None:
        raise refusal
    return answer, connection.address


def is_out_of_range(data: PartitionData) -> bool:
    """Whether the offset is not in the log. `refusal_in` excludes this case, because each caller handles it itself."""
    return data.error_code == Error.OFFSET_OUT_OF_RANGE


def refusal_in(data: PartitionData, partition: TopicPartition, broker: Address) -> Declined | None:
    """The error of a partition in the response; None if there is none, or if the offset is out of range."""
    return None if is_out_of_range(data) else refusal_of(data.error_code, broker, f"partition {partition}")


def aborted_in(data: PartitionData) -> list[Aborted]:
    """The aborted transactions whose records the reader must drop."""
    return [Aborted(one.first_offset, one.producer_id) for one in data.aborted_transactions or ()]


def _fetch_topics(partitions: Mapping[TopicPartition, PartitionFetch]) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for partition, asked in partitions.items():
        entry = topics.setdefault(
            partition.topic, FetchTopic(topic=partition.topic, topic_id=asked.topic_id, partitions=[])
        )
        entry.partitions.append(
            FetchPartition(
                partition=partition.partition,
                current_leader_epoch=asked.leader_epoch,
                fetch_offset=asked.offset,
                partition_max_bytes=asked.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten_topics(partitions: Mapping[TopicPartition, PartitionFetch]) -> list[ForgottenTopic]:
    topics: dict[str, ForgottenTopic] = {}
    for partition, asked in partitions.items():
        entry = topics.setdefault(
            partition.topic, ForgottenTopic(topic=partition.topic, topic_id=asked.topic_id, partitions=[])
        )
        entry.partitions.append(partition.partition)
    return list(topics.values())
