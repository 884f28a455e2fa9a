"""The DescribeProducers API, all versions."""

from collections.abc import Sequence

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, Int64, String


@struct
class TopicRequest:
    name: String
    partition_indexes: list[Int32]


@message(api_key=61, versions=(0, 0), flexible=0, listeners=("broker",))
class DescribeProducersRequest:
    """Ask which producers are writing to partitions."""

    topics: list[TopicRequest]


@struct
class ProducerState:
    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = field(default=-1)


@struct
class PartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    active_producers: Sequence[ProducerState]


@struct
class TopicResponse:
    name: String
    partitions: list[PartitionResponse]


@message(api_key=61, versions=(0, 0), flexible=0)
class DescribeProducersResponse:
    """The producers a partition remembers, and their open transactions."""

    throttle_time_ms: Int32
    topics: list[TopicResponse]
