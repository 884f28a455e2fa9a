"""Builds and sends one Produce request, and returns the result of each batch.

Used by `Producer` and by the sink of data pipelines (`pipelines/sink/batch_sender`). The producer gathers records,
keeps one batch of a partition in flight, and may split it or change its producer id. The sink has finished batches,
keeps several in flight, and gives up the whole epoch when one batch fails.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.client.client import Client
from ottla.client.core.accumulator import Batch, by_topic
from ottla.client.core.cluster import Cluster
from ottla.client.core.names import TopicPartition
from ottla.client.transactions import Transactions
from ottla.kernel import Codec
from ottla.rpc.addresses import Address
from ottla.rpc.errors import ClientError, Declined, error_of, refusal_of
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.errors import Error
from ottla.wire.types import NO_UUID

ALL: Final = -1
"""The value of `acks` with which a broker responds when all in-sync replicas have the batch."""
_WITH_NAMES: Final = 12  # Last version of Produce that names topics; later ones carry their ids.
_STORED: Final = (Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER)
_NO_TIMEOUT_MS: Final = 2**31 - 1


class BatchAnswer(NamedTuple):
    """The result of one batch in a Produce request."""

    batch: Batch
    error: ClientError | None
    """None: this or an earlier attempt has stored the batch. Otherwise it was refused, or there was no response."""
    response: PartitionProduceResponse | None = None
    """None with acks=0, and if the response does not contain the partition."""

    @property
    def refused_records(self) -> Mapping[int, str | None]:
        """The records that the broker reports as invalid: index in the batch, and the broker's message."""
        if self.response is None:
            return {}
        return {one.batch_index: one.batch_index_error_message for one in self.response.record_errors}


async def send_batches(
    client: Client,
    node: int,
    batches: Sequence[Batch],
    *,
    timeout_ms: Callable[[], int],
    acks: int = ALL,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    transactions: Transactions | None = None,
) -> list[BatchAnswer]:
    """Send the batches, at most one of each partition, to the node that leads them. Returns a result for each batch.

    In a transaction the partitions are added to it first. `timeout_ms` is called just before the request is sent.
    Raises no ClientError: it becomes the error of every batch.
    """
    try:
        request = _produce_request(client, batches, acks=acks, codec=codec, level=level)
        at_most = _WITH_NAMES if any(topic.topic_id == NO_UUID for topic in request.topic_data) else None
        if transactions is not None:
            await transactions.admit(batches)
            request.transactional_id = transactions.transactional_id
            at_most = transactions.produce_version_max or at_most
        connection = await client.brokers.node(node)
        if acks == 0:
            await connection.tell(request, at_most=at_most)
            return [BatchAnswer(batch, None) for batch in batches]
        answer: ProduceResponse = await connection.call(request, timeout_ms=timeout_ms(), at_most=at_most)
    except ClientError as error:
        return [BatchAnswer(batch, error) for batch in batches]
    responses = _by_partition(answer, client.cluster)
    return [_answer(batch, responses.get(batch.partition), connection.address) for batch in batches]


async def new_producer_id(client: Client) -> tuple[int, int]:
    """Request a producer id for a producer without transactions; returns id and epoch. Raises ClientError."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT_MS)
    connection, answer = await client.call_any(request)
    assert isinstance(answer, InitProducerIdResponse)
    refusal = refusal_of(answer.error_code, connection.address, "producer id")
    if refusal is not None:
        raise refusal
    return answer.producer_id, answer.producer_epoch


def _answer(batch: Batch, response: PartitionProduceResponse | None, broker: Address) -> BatchAnswer:
    code = Error.NETWORK_EXCEPTION if response is None else error_of(response.error_code)
    if code in _STORED:
        return BatchAnswer(batch, None, response)
    text = None
    if response is not None:
        reasons = [one.batch_index_error_message for one in response.record_errors]
        text = next((reason for reason in reasons if reason), response.error_message)
    refusal = Declined(code, broker=broker, subject=f"partition {batch.partition}", text=text)
    return BatchAnswer(batch, refusal, response)


def _produce_request(
    client: Client, batches: Sequence[Batch], *, acks: int, codec: Codec, level: int | None
) -> ProduceRequest:
    """The request, with both name and id of each topic; its version decides which of them is encoded."""
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


def _by_partition(answer: ProduceResponse, cluster: Cluster) -> dict[TopicPartition, PartitionProduceResponse]:
    found: dict[TopicPartition, PartitionProduceResponse] = {}
    for topic in answer.responses:
        name = topic.name or cluster.name_of(topic.topic_id) or ""
        found.update({TopicPartition(name, one.index): one for one in topic.partition_responses})
    return found
