"""The FetchSnapshot API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Int16, Int32, Int64, Records, String, UInt16, Uuid


@struct
class SnapshotId:
    end_offset: Int64
    epoch: Int32


@struct
class RequestPartitionSnapshot:
    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: SnapshotId
    position: Int64
    replica_directory_id: Uuid = field(since=1, tag=0, default=NO_UUID, ignorable=True)


@struct
class RequestTopicSnapshot:
    name: String
    partitions: list[RequestPartitionSnapshot]


@message(api_key=59, versions=(0, 1), flexible=0, listeners=("controller",))
class FetchSnapshotRequest:
    """Read a piece of a snapshot of the metadata log."""

    cluster_id: String | None = field(tag=0, default=None)
    replica_id: Int32 = field(default=-1)
    max_bytes: Int32 = field(default=2**31 - 1)
    topics: list[RequestTopicSnapshot]


@struct
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@struct
class ResponsePartitionSnapshot:
    index: Int32
    error_code: Int16
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch | None = field(tag=0, default=None, nullable=False)
    size: Int64
    position: Int64
    unaligned_records: Records


@struct
class ResponseTopicSnapshot:
    name: String
    partitions: list[ResponsePartitionSnapshot]


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: UInt16


@message(api_key=59, versions=(0, 1), flexible=0)
class FetchSnapshotResponse:
    """A piece of a snapshot."""

    throttle_time_ms: Int32
    error_code: Int16
    topics: list[ResponseTopicSnapshot]
    node_endpoints: list[NodeEndpoint] = field(since=1, tag=0, default=[])
