"""The EndQuorumEpoch API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, String, UInt16, Uuid


@struct
class ReplicaInfo:
    candidate_id: Int32
    candidate_directory_id: Uuid


@struct
class RequestPartitionData:
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: list[Int32] = field(until=0, default=[], ignorable=True)
    preferred_candidates: list[ReplicaInfo] = field(since=1, default=[], ignorable=True)


@struct
class RequestTopicData:
    topic_name: String
    partitions: list[RequestPartitionData]


@struct
class LeaderEndpoint:
    name: String
    host: String
    port: UInt16


@message(api_key=54, versions=(0, 1), flexible=1, listeners=("controller",))
class EndQuorumEpochRequest:
    """The leader of the metadata quorum resigns and names who should follow."""

    cluster_id: String | None = field(default=None)
    topics: list[RequestTopicData]
    leader_endpoints: list[LeaderEndpoint] = field(since=1, default=[], ignorable=True)


@struct
class ResponsePartitionData:
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32


@struct
class ResponseTopicData:
    topic_name: String
    partitions: list[ResponsePartitionData]


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: UInt16


@message(api_key=54, versions=(0, 1), flexible=1)
class EndQuorumEpochResponse:
    """Whether a voter took note of the resignation."""

    error_code: Int16
    topics: list[ResponseTopicData]
    node_endpoints: list[NodeEndpoint] = field(since=1, tag=0, default=[])
