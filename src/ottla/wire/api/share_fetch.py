"""The ShareFetch API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int8, Int16, Int32, Int64, Records, String, Uuid


@struct
class AcknowledgementBatch:
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


@struct
class FetchPartition:
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class FetchTopic:
    topic_id: Uuid
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    topic_id: Uuid
    partitions: list[Int32]


@message(api_key=78, versions=(1, 2), flexible=0, listeners=("broker",))
class ShareFetchRequest:
    """Acquire records of partitions shared with other members, and acknowledge earlier ones."""

    group_id: String | None = field(default=None)
    member_id: String | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=2**31 - 1)
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = field(since=2, default=0, ignorable=True)
    is_renew_ack: Bool = field(since=2, default=False)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


@struct
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@struct
class AcquiredRecords:
    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    acknowledge_error_code: Int16
    acknowledge_error_message: String | None = field(default=None)
    current_leader: LeaderIdAndEpoch
    records: Records
    acquired_records: list[AcquiredRecords]


@struct
class ShareFetchableTopicResponse:
    topic_id: Uuid
    partitions: list[PartitionData]


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)


@message(api_key=78, versions=(1, 2), flexible=0)
class ShareFetchResponse:
    """The records acquired, with how often each was delivered."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]
