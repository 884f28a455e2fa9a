"""The ShareAcknowledge API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int8, Int16, Int32, Int64, String, Uuid


@struct
class AcknowledgementBatch:
    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


@struct
class AcknowledgePartition:
    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


@struct
class AcknowledgeTopic:
    topic_id: Uuid
    partitions: list[AcknowledgePartition]


@message(api_key=79, versions=(1, 2), flexible=0, listeners=("broker",))
class ShareAcknowledgeRequest:
    """Accept, release or reject records that a share group was given."""

    group_id: String | None = field(default=None)
    member_id: String | None
    share_session_epoch: Int32
    is_renew_ack: Bool = field(since=2, default=False)
    topics: list[AcknowledgeTopic]


@struct
class LeaderIdAndEpoch:
    leader_id: Int32
    leader_epoch: Int32


@struct
class PartitionData:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    current_leader: LeaderIdAndEpoch


@struct
class ShareAcknowledgeTopicResponse:
    topic_id: Uuid
    partitions: list[PartitionData]


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(default=None)


@message(api_key=79, versions=(1, 2), flexible=0)
class ShareAcknowledgeResponse:
    """The outcome per partition."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field(since=2, default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]
