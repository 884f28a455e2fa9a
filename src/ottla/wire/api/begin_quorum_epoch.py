"""The BeginQuorumEpoch API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Int16, Int32, String, UInt16, Uuid


@struct
class RequestPartitionData:
    partition_index: Int32
    voter_directory_id: Uuid = field(since=1, default=NO_UUID, ignorable=True)
    leader_id: Int32
    leader_epoch: Int32


@struct
class RequestTopicData:
    topic_name: String
    partitions: list[RequestPartitionData]


@struct
class LeaderEndpoint:
    name: String
    host: String
    port: UInt16


@message(api_key=53, versions=(0, 1), flexible=1, listeners=("controller",))
class BeginQuorumEpochRequest:
    """A new leader of the metadata quorum announces itself to the voters."""

    cluster_id: String | None = field(default=None)
    voter_id: Int32 = field(since=1, default=-1, ignorable=True)
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


@message(api_key=53, versions=(0, 1), flexible=1)
class BeginQuorumEpochResponse:
    """Whether a voter follows the leader that announced itself."""

    error_code: Int16
    topics: list[ResponseTopicData]
    node_endpoints: list[NodeEndpoint] = field(since=1, tag=0, default=[])
