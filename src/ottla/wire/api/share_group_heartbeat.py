"""The ShareGroupHeartbeat API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, String, Uuid


@message(api_key=76, versions=(1, 1), flexible=0, listeners=("broker",))
class ShareGroupHeartbeatRequest:
    """Join, stay in or leave a share group."""

    group_id: String
    member_id: String
    member_epoch: Int32  # 0 join, -1 leave.
    rack_id: String | None = field(default=None)
    subscribed_topic_names: list[String] | None = field(default=None)


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@struct
class Assignment:
    topic_partitions: list[TopicPartitions]


@message(api_key=76, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatResponse:
    """The member's epoch and the partitions it should read."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = field(default=None)
