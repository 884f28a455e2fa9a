"""What stands in the logs: directories and sizes, producers."""

from collections import defaultdict

from ottla.broker.dispatch import Call
from ottla.core.metadata.names import check_name
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


def describe_log_dirs(request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    store = call.node.store
    results = []
    for directory in store.directories:
        if directory.failure is not None:
            results.append(
                DescribeLogDirsResult(error_code=Error.KAFKA_STORAGE_ERROR, log_dir=directory.path, topics=[])
            )
            continue
        topics: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
        for (topic, index), log in sorted(store.logs.items()):
            if log.directory is directory and (wanted is None or (topic, index) in wanted):
                topics[topic].append(
                    DescribeLogDirsPartition(
                        partition_index=index,
                        partition_size=log.log.size,
                        offset_lag=max(log.log.high_watermark - log.log.end_offset, 0),
                        is_future_key=False,
                    )
                )
        results.append(
            DescribeLogDirsResult(
                error_code=Error.NONE,
                log_dir=directory.path,
                topics=[DescribeLogDirsTopic(name=name, partitions=found) for name, found in topics.items()],
                total_bytes=store.disk.total_bytes(directory.path),
                usable_bytes=store.disk.free_bytes(directory.path),
            )
        )
    return DescribeLogDirsResponse(throttle_time_ms=0, results=results)


def describe_producers(request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        throttle_time_ms=0,
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_producers(call, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ],
    )


def _producers(call: Call, topic: str, index: int) -> PartitionResponse:
    try:
        check_name(topic)
        partition = call.node.partition(topic, index)
    except Refused as refusal:
        return PartitionResponse(
            partition_index=index, error_code=refusal.error, error_message=refusal.text, active_producers=[]
        )
    return PartitionResponse(
        partition_index=index,
        error_code=Error.NONE,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=-1 if producer.txn_first_offset is None else producer.txn_first_offset,
            )
            for producer in partition.log.log.producers.by_id.values()
        ],
    )
