"""List and describe transactions, and fence a producer."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ottla.client.client import Client
from ottla.client.coordinators import CoordinatorType, ask_coordinators, ask_every_broker
from ottla.client.core.names import TopicPartition
from ottla.rpc.errors import ClientError, Unsupported, refusal_of
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse

TRANSACTION: Final = CoordinatorType.TRANSACTION
FILTERS_DURATION: Final = 1  # First version of ListTransactions with a duration filter.
ANY_DURATION: Final = -1


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionDescription(NamedTuple):
    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None  # None while no transaction is open.
    partitions: list[TopicPartition]  # Those that wait for a marker.


async def list_transactions(
    client: Client,
    *,
    states: Sequence[str] = (),
    producer_ids: Sequence[int] = (),
    longer_than_ms: int = ANY_DURATION,
) -> dict[int, list[TransactionListing] | ClientError]:
    """The transactional ids that each broker coordinates; without filters, all."""

    async def ask(node: int) -> list[TransactionListing]:
        connection = await client.brokers.node(node)
        if longer_than_ms != ANY_DURATION and connection.version_for(ListTransactionsRequest) < FILTERS_DURATION:
            raise Unsupported(connection.address, "it is too old to list transactions by duration")
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=longer_than_ms
        )
        answer = await connection.call(request, timeout_ms=client.request_timeout_ms)
        assert isinstance(answer, ListTransactionsResponse)
        refusal = refusal_of(answer.error_code, connection.address, "list of transactions")
        if refusal is not None:
            raise refusal
        return [
            TransactionListing(one.transactional_id, one.producer_id, one.transaction_state, node)
            for one in answer.transaction_states
        ]

    return await ask_every_broker(client, ask)


async def describe_transactions(
    client: Client, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription | ClientError]:
    async def ask(node: int, ids: list[str]) -> dict[str, TransactionDescription | ClientError]:
        connection, answer = await client.call_node(node, DescribeTransactionsRequest(transactional_ids=ids))
        assert isinstance(answer, DescribeTransactionsResponse)
        outcomes: dict[str, TransactionDescription | ClientError] = {}
        for one in answer.transaction_states:
            subject = TRANSACTION.subject(one.transactional_id)
            outcomes[one.transactional_id] = refusal_of(
                one.error_code, connection.address, subject
            ) or TransactionDescription(
                one.transactional_id,
                one.transaction_state,
                node,
                one.producer_id,
                one.producer_epoch,
                one.transaction_timeout_ms,
                one.transaction_start_time_ms if one.transaction_start_time_ms >= 0 else None,
                sorted(TopicPartition(topic.topic, index) for topic in one.topics for index in topic.partitions),
            )
        return outcomes

    return await ask_coordinators(client, TRANSACTION, transactional_ids, ask)


async def fence_producer(client: Client, transactional_id: str, *, timeout_ms: int) -> None:
    """Fence the producer of a transactional id, which aborts its open transaction; returns when it is aborted.

    The coordinator keeps `timeout_ms` as the id's transaction time-out. Repeating is safe: the last request owns the
    id.
    """

    async def ask(node: int, _: list[str]) -> dict[str, ClientError | None]:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        connection, answer = await client.call_node(node, request)
        assert isinstance(answer, InitProducerIdResponse)
        subject = TRANSACTION.subject(transactional_id)
        return {transactional_id: refusal_of(answer.error_code, connection.address, subject)}

    outcome = (await ask_coordinators(client, TRANSACTION, [transactional_id], ask))[transactional_id]
    if outcome is not None:
        raise outcome
