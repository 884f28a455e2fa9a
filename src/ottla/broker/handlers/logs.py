"""DescribeLogDirs and DescribeProducers."""

from collections import defaultdict

from ottla.broker.network.dispatch import Call
from ottla.core.metadata.names import check_name
from ottla.storage.log_directory import Partition
from ottla.storage.partition_log import PartitionLog
from ottla.wire.api.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.wire.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.wire.errors import Error, Refused
from ottla.wire.rows import Shared


async def describe_log_dirs(request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    store, budget = call.node.store, call.budget
    wanted: dict[Partition, None] | None = None
    if request.topics is not None:
        wanted = {}
        for asked in request.topics:
            async for indexes in budget.parts(asked.partitions):
                wanted |= {(asked.topic, index): None for index in indexes}
    results = []
    for directory in store.directories:
        if directory.failure is not None:
            results.append(
                DescribeLogDirsResult(error_code=Error.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[])
            )
            continue
        topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
        async for part in budget.parts(list(store.logs if wanted is None else wanted)):
            for key in part:
                log = store.logs.get(key)
                if log is not None and log.directory is directory:
                    topics[log.key[0]].append(_described(log))
        results.append(
            DescribeLogDirsResult(
                error_code=Error.NONE,
                log_dir=directory.path,
                topics=[
                    DescribeLogDirsTopic(
                        name=name, partitions=sorted(topics[name], key=lambda found: found.partition_index)
                    )
                    for name in await budget.sorted(topics)
                ],
                total_bytes=store.disk.total_bytes(directory.path),
                usable_bytes=store.disk.free_bytes(directory.path),
            )
        )
    return DescribeLogDirsResponse(throttle_time_ms=0, results=results)


def _described(log: PartitionLog) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=log.key[1],
        partition_size=log.state.size,
        offset_lag=max(log.state.high_watermark - log.state.end_offset, 0),
        is_future_key=False,
    )


async def describe_producers(request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
    """Describe the producers of partitions. A partition that is named again shares the description, because it may have
    very many producers."""
    known: dict[Partition, PartitionResponse] = {}
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            key, cost = (topic.name, index), 1
            if key not in known:
                known[key] = _producers(call, *key)
                cost += len(known[key].active_producers)
            partitions.append(known[key])
            if call.budget.is_spent(cost):
                await call.budget.give_way()
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


def _producers(call: Call, topic: str, index: int) -> PartitionResponse:
    try:
        check_name(topic)
        partition = call.node.partition(topic, index)
    except Refused as refusal:
        return PartitionResponse(
            partition_index=index, error_code=refusal.error, error_message=refusal.brief, active_producers=[]
        )
    return PartitionResponse(
        partition_index=index,
        error_code=Error.NONE,
        active_producers=Shared(
            [
                ProducerState(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=-1 if producer.txn_first_offset is None else producer.txn_first_offset,
                )
                for producer in partition.log.state.producers.by_id.values()
            ]
        ),
    )
