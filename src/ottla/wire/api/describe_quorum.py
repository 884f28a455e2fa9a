"""The DescribeQuorum API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Int16, Int32, Int64, String, UInt16, Uuid


@struct
class RequestPartitionData:
    partition_index: Int32


@struct
class RequestTopicData:
    topic_name: String
    partitions: list[RequestPartitionData]


@message(api_key=55, versions=(0, 2), flexible=0, listeners=("broker", "controller"))
class DescribeQuorumRequest:
    """Ask for the state of the metadata quorum."""

    topics: list[RequestTopicData]


@struct
class ReplicaState:
    replica_id: Int32
    replica_directory_id: Uuid = field(since=2, default=NO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field(since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field(since=1, default=-1, ignorable=True)


@struct
class ResponsePartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(since=2, default="", ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


@struct
class ResponseTopicData:
    topic_name: String
    partitions: list[ResponsePartitionData]


@struct
class Listener:
    name: String
    host: String
    port: UInt16


@struct
class Node:
    node_id: Int32
    listeners: list[Listener]


@message(api_key=55, versions=(0, 2), flexible=0)
class DescribeQuorumResponse:
    """Leader, voters and observers of the metadata quorum, and how far each has read."""

    error_code: Int16
    error_message: String | None = field(since=2, default="", ignorable=True)
    topics: list[ResponseTopicData]
    nodes: list[Node] = field(since=2, default=[])
