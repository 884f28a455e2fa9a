"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, DescribeTransactions, ListTransactions."""

from collections.abc import Callable, Iterable
from typing import Final

from ottla.broker.coordinators.internal_topics import ensure_internal_topic
from ottla.broker.coordinators.markers import TxnMarker, write_markers
from ottla.broker.coordinators.transactions import check_name
from ottla.broker.network.backlog import Budget
from ottla.broker.network.dispatch import Call
from ottla.core.metadata.names import CONSUMER_OFFSETS, is_internal
from ottla.core.runtime.shard import hash_cost
from ottla.core.transactions.queries import Filters
from ottla.core.transactions.transaction import (
    EPOCH_PER_TRANSACTION,
    NOBODY,
    ProducerIdentity,
    TopicPartition,
    Transaction,
    by_topic,
)
from ottla.wire.api import describe_transactions as described
from ottla.wire.api import list_transactions as listed
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.wire.errors import Error, Refused
from ottla.wire.rows import Shared

_BATCHES_SINCE: Final = 4
_FENCED_SINCE: Final = 2
_EPOCH_PER_TRANSACTION_SINCE: Final = 5


# Partitions of a transaction.


async def add_partitions_to_txn(request: AddPartitionsToTxnRequest, call: Call) -> AddPartitionsToTxnResponse:
    """Add partitions to transactions. A client names one transaction. From version 4 on, brokers name several, and may
    request only a check (`verify_only`)."""
    if call.version >= _BATCHES_SINCE:
        results = []
        for one in request.transactions:
            results.append(await _add_partitions(one, call))
            if call.budget.is_spent(hash_cost(one.transactional_id)):
                await call.budget.give_way()
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results)
    wanted = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    result = await _add_partitions(wanted, call)
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=result.topic_results)


async def _add_partitions(wanted: AddPartitionsToTxnTransaction, call: Call) -> AddPartitionsToTxnResult:
    transactional_id, budget = wanted.transactional_id, call.budget
    wrong: dict[TopicPartition, Error] = {}
    partitions: dict[TopicPartition, None] = {}
    for topic in wanted.topics:
        async for indexes in budget.parts(topic.partitions):
            named = [(topic.name, index) for index in indexes]
            partitions |= dict.fromkeys(named)
            wrong |= {one: error for one in named if (error := _refusal_of(one, call)) is not None}
        if budget.is_spent():
            await budget.give_way()
    if wrong:
        # One partition that cannot be added fails all, because a transaction must not lack some of its partitions.
        def error_of(one: TopicPartition) -> Error:
            return wrong.get(one, Error.OPERATION_NOT_ATTEMPTED)

        return await _partition_results(transactional_id, partitions, error_of, budget)
    producer = ProducerIdentity(wanted.producer_id, wanted.producer_epoch)
    version = EPOCH_PER_TRANSACTION if call.version >= _BATCHES_SINCE else 0
    transactions = call.node.transactions
    try:
        check_name(transactional_id)
        if wanted.verify_only:
            refused = await transactions.verify_partitions(transactional_id, producer, partitions)
            return await _partition_results(
                transactional_id, partitions, lambda one: refused.get(one, Error.NONE), budget
            )
        await transactions.add_partitions(transactional_id, producer, list(partitions), version)
    except Refused as refusal:
        return await _result_for_all(wanted, _told(refusal.error, call.version), budget)
    return await _result_for_all(wanted, Error.NONE, budget)


def _refusal_of(partition: TopicPartition, call: Call) -> Error | None:
    """Why a partition cannot be added to a transaction; None if it can. Clients may not add partitions of internal
    topics; brokers add the partition of `__consumer_offsets` that holds a group's offsets."""
    if call.version < _BATCHES_SINCE and is_internal(partition[0]):
        return Error.TOPIC_AUTHORIZATION_FAILED
    return Error.UNKNOWN_TOPIC_OR_PARTITION if call.node.metadata.image.partition(*partition) is None else None


async def _result_for_all(
    wanted: AddPartitionsToTxnTransaction, error: Error, budget: Budget
) -> AddPartitionsToTxnResult:
    """The result with the same error for each partition, in the order of the request."""
    return AddPartitionsToTxnResult(
        transactional_id=wanted.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=await budget.each(
                    dict.fromkeys(topic.partitions), lambda index: _partition_result(index, error)
                ),
            )
            for topic in wanted.topics
        ],
    )


async def _partition_results(
    transactional_id: str,
    partitions: Iterable[TopicPartition],
    error_of: Callable[[TopicPartition], Error],
    budget: Budget,
) -> AddPartitionsToTxnResult:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}

    def add(one: TopicPartition) -> None:
        topics.setdefault(one[0], []).append(_partition_result(one[1], error_of(one)))

    await budget.each(partitions, add)
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=await budget.each(
            topics.items(), lambda one: AddPartitionsToTxnTopicResult(name=one[0], results_by_partition=one[1])
        ),
    )


def _partition_result(index: int, error: Error) -> AddPartitionsToTxnPartitionResult:
    return AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)


async def add_offsets_to_txn(request: AddOffsetsToTxnRequest, call: Call) -> AddOffsetsToTxnResponse:
    """Add a group's offsets to a transaction: they are records in one partition of `__consumer_offsets`, which becomes
    part of the transaction."""
    transactional_id = request.transactional_id
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    error = Error.NONE
    try:
        check_name(transactional_id)
        # Clients look up the group's coordinator, which creates the topic, only after this response.
        await ensure_internal_topic(call.node, CONSUMER_OFFSETS)
        partition = (CONSUMER_OFFSETS, call.node.groups.partition_of(request.group_id))
        await call.node.transactions.add_partitions(transactional_id, producer, [partition], 0)
    except Refused as refusal:
        error = _told(refusal.error, call.version)
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=error)


# Ending.


async def end_txn(request: EndTxnRequest, call: Call) -> EndTxnResponse:
    """End a transaction. The response is sent when the decision is committed; the markers are written afterwards."""
    transactional_id = request.transactional_id
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    version = EPOCH_PER_TRANSACTION if call.version >= _EPOCH_PER_TRANSACTION_SINCE else 0
    error, after = Error.NONE, NOBODY
    try:
        check_name(transactional_id)
        after = await call.node.transactions.decide(
            transactional_id,
            lambda shard, now_ms: shard.end(
                transactional_id, producer, commit=request.committed, client_version=version, now_ms=now_ms
            ),
        )
    except Refused as refusal:
        error = _told(refusal.error, call.version)
    return EndTxnResponse(
        throttle_time_ms=0, error_code=error, producer_id=after.producer_id, producer_epoch=after.epoch
    )


async def write_txn_markers(request: WriteTxnMarkersRequest, call: Call) -> WriteTxnMarkersResponse:
    """Write markers. The response is sent when they are committed. Several markers of one producer have one common
    result, as in Kafka."""
    errors: dict[int, dict[TopicPartition, Error]] = {}
    for wanted in request.markers:
        errors.setdefault(wanted.producer_id, {}).update(await _write_marker(wanted, call))
        if call.budget.is_spent():
            await call.budget.give_way()
    results = []
    for producer_id, found in errors.items():
        if found:
            topics = await _marker_results(found, call.budget)
            results.append(WritableTxnMarkerResult(producer_id=producer_id, topics=topics))
        if call.budget.is_spent():
            await call.budget.give_way()
    return WriteTxnMarkersResponse(markers=results)


async def _write_marker(wanted: WritableTxnMarker, call: Call) -> dict[TopicPartition, Error]:
    marker = TxnMarker(
        ProducerIdentity(wanted.producer_id, wanted.producer_epoch),
        wanted.transaction_result,
        wanted.coordinator_epoch,
        wanted.transaction_version,
    )
    named = ((topic.name, index) for topic in wanted.topics for index in topic.partition_indexes)
    outcomes = await write_markers(call.node, marker, named, call.budget)
    return {partition: refusal.error if refusal else Error.NONE for partition, refusal in outcomes.items()}


async def _marker_results(errors: dict[TopicPartition, Error], budget: Budget) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}

    def add(one: tuple[TopicPartition, Error]) -> None:
        (topic, index), error = one
        topics.setdefault(topic, []).append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=error))

    await budget.each(errors.items(), add)
    return await budget.each(topics.items(), lambda one: WritableTxnMarkerTopicResult(name=one[0], partitions=one[1]))


# Describing.


async def describe_transactions(request: DescribeTransactionsRequest, call: Call) -> DescribeTransactionsResponse:
    """Describe transactions. An id that is named twice is described once, because its transaction may have very many
    partitions."""
    known: dict[str, described.TransactionState] = {}
    states = []
    for transactional_id in request.transactional_ids:
        cost = 1
        if transactional_id not in known:
            state = known[transactional_id] = await _describe(transactional_id, call)
            state.topics = Shared(state.topics)
            cost = hash_cost(transactional_id) + sum(len(topic.partitions) for topic in state.topics)
        states.append(known[transactional_id])
        if call.budget.is_spent(cost):
            await call.budget.give_way()
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


async def _describe(transactional_id: str, call: Call) -> described.TransactionState:
    try:
        check_name(transactional_id)
        found = await call.node.transactions.read(transactional_id, lambda shard: shard.described(transactional_id))
    except Refused as refusal:
        return _described(transactional_id, refusal.error, None, ())
    if found is None:
        return _described(transactional_id, Error.TRANSACTIONAL_ID_NOT_FOUND, None, ())
    return _described(transactional_id, Error.NONE, *found)


def _described(
    transactional_id: str, error: Error, known: Transaction | None, partitions: Iterable[TopicPartition]
) -> described.TransactionState:
    return described.TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="" if known is None else known.state.label,
        transaction_timeout_ms=0 if known is None else known.timeout_ms,
        transaction_start_time_ms=0 if known is None else known.start_ms,
        producer_id=0 if known is None else known.producer_id,
        producer_epoch=0 if known is None else known.producer_epoch,
        topics=[
            described.TopicData(topic=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()
        ],
    )


async def list_transactions(request: ListTransactionsRequest, call: Call) -> ListTransactionsResponse:
    filters = Filters(
        frozenset(request.state_filters),
        frozenset(request.producer_id_filters),
        request.duration_filter,
        request.transactional_id_pattern or "",
    )
    try:
        matches = filters.matcher()
        found = await call.node.transactions.coordinator.read_each(
            lambda shard: shard.transactions,
            lambda shard, few, now_ms: [
                (transactional_id, known)
                for transactional_id in few
                if (known := shard.transactions.get(transactional_id)) is not None
                and matches(transactional_id, known, now_ms)
            ],
            call.budget,
        )
    except Refused as refusal:
        return ListTransactionsResponse(
            throttle_time_ms=0, error_code=refusal.error, unknown_state_filters=[], transaction_states=[]
        )
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=Error.NONE,
        unknown_state_filters=await call.budget.sorted(filters.unknown_states()),
        transaction_states=await call.budget.each(
            found,
            lambda one: listed.TransactionState(
                transactional_id=one[0], producer_id=one[1].producer_id, transaction_state=one[1].state.label
            ),
        ),
    )


# Shared.


def _told(error: Error, version: int) -> Error:
    """The error for a client of this version: early versions do not know PRODUCER_FENCED."""
    if error is Error.PRODUCER_FENCED and version < _FENCED_SINCE:
        return Error.INVALID_PRODUCER_EPOCH
    return error
