"""The Fetch API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Int8, Int16, Int32, Int64, Records, String, Uuid


@struct
class ReplicaState:
    replica_id: Int32 = field(default=-1)
    replica_epoch: Int64 = field(default=-1)


@struct
class FetchPartition:
    partition: Int32
    current_leader_epoch: Int32 = field(since=9, default=-1, ignorable=True)
    fetch_offset: Int64  # Where to start.
    last_fetched_epoch: Int32 = field(since=12, default=-1)  # Lets the leader see a diverging log (KIP-595).
    log_start_offset: Int64 = field(since=5, default=-1, ignorable=True)  # Of the follower; -1 from a consumer.
    partition_max_bytes: Int32
    replica_directory_id: Uuid = field(since=17, tag=0, default=NO_UUID, ignorable=True)
    high_watermark: Int64 = field(since=18, tag=1, default=2**63 - 1, ignorable=True)


@struct
class FetchTopic:
    topic: String = field(until=12, default="", ignorable=True)
    topic_id: Uuid = field(since=13, default=NO_UUID, ignorable=True)
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    topic: String = field(until=12, default="", ignorable=True)
    topic_id: Uuid = field(since=13, default=NO_UUID, ignorable=True)
    partitions: list[Int32]


@message(api_key=1, versions=(4, 18), flexible=12, listeners=("broker", "controller"))
class FetchRequest:
    """Read record batches from partition logs: consumers, followers and observers of the quorum."""

    cluster_id: String | None = field(since=12, tag=0, default=None, ignorable=True)
    replica_id: Int32 = field(until=14, default=-1)  # -1 a consumer; since 15 see replica_state.
    replica_state: ReplicaState | None = field(since=15, tag=1, default=None, nullable=False)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=2**31 - 1)
    isolation_level: Int8 = field(default=0)  # 0 read_uncommitted, 1 read_committed.
    session_id: Int32 = field(since=7, default=0, ignorable=True)
    session_epoch: Int32 = field(since=7, default=-1, ignorable=True)  # -1 no session, 0 a new one.
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field(since=7, default=[])
    rack_id: String = field(since=11, default="", ignorable=True)


@struct
class EpochEndOffset:
    epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


@struct
class SnapshotId:
    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


@struct
class AbortedTransaction:
    producer_id: Int64
    first_offset: Int64


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = field(default=-1)
    log_start_offset: Int64 = field(since=5, default=-1, ignorable=True)
    # Set when the fetcher's log diverges: truncate to it.
    diverging_epoch: EpochEndOffset | None = field(since=12, tag=0, default=None, nullable=False)
    current_leader: LeaderIdAndEpoch | None = field(since=12, tag=1, default=None, nullable=False)
    snapshot_id: SnapshotId | None = field(since=12, tag=2, default=None, nullable=False)
    aborted_transactions: list[AbortedTransaction] | None
    preferred_read_replica: Int32 = field(since=11, default=-1)  # KIP-392: read there instead.
    records: Records | None


@struct
class FetchableTopicResponse:
    topic: String = field(until=12, default="", ignorable=True)
    topic_id: Uuid = field(since=13, default=NO_UUID, ignorable=True)
    partitions: list[PartitionData]


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)


@message(api_key=1, versions=(4, 18), flexible=12)
class FetchResponse:
    """Record batches, and where each partition's log stands."""

    throttle_time_ms: Int32
    error_code: Int16 = field(since=7, default=0, ignorable=True)
    session_id: Int32 = field(since=7, default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field(since=16, tag=0, default=[])
