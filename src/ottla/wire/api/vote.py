"""The Vote API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Bool, Int16, Int32, Int64, String, UInt16, Uuid


@struct
class RequestPartitionData:
    partition_index: Int32
    replica_epoch: Int32
    replica_id: Int32
    replica_directory_id: Uuid = field(since=1, default=NO_UUID, ignorable=True)
    voter_directory_id: Uuid = field(since=1, default=NO_UUID, ignorable=True)
    last_offset_epoch: Int32
    last_offset: Int64
    pre_vote: Bool = field(since=2, default=False)


@struct
class RequestTopicData:
    topic_name: String
    partitions: list[RequestPartitionData]


@message(api_key=52, versions=(0, 2), flexible=0, listeners=("controller",))
class VoteRequest:
    """A candidate, or one about to be, asks for a vote in the metadata quorum."""

    cluster_id: String | None = field(default=None)
    voter_id: Int32 = field(since=1, default=-1, ignorable=True)  # Of the receiver.
    topics: list[RequestTopicData]


@struct
class ResponsePartitionData:
    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    vote_granted: Bool


@struct
class ResponseTopicData:
    topic_name: String
    partitions: list[ResponsePartitionData]


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: UInt16


@message(api_key=52, versions=(0, 2), flexible=0)
class VoteResponse:
    """Whether the vote was given."""

    error_code: Int16
    topics: list[ResponseTopicData]
    node_endpoints: list[NodeEndpoint] = field(since=1, tag=0, default=[])
