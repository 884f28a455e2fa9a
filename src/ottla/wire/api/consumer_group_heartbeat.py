"""The ConsumerGroupHeartbeat API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int16, Int32, String, Uuid


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: list[Int32]


@message(api_key=68, versions=(0, 1), flexible=0, listeners=("broker",))
class ConsumerGroupHeartbeatRequest:
    """Join, stay in or leave a group of the new consumer protocol (KIP-848)."""

    group_id: String
    member_id: String
    member_epoch: Int32  # 0 join, -1 leave, -2 leave for a while (static member).
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[String] | None = field(default=None)
    subscribed_topic_regex: String | None = field(since=1, default=None)
    server_assignor: String | None = field(default=None)
    topic_partitions: list[TopicPartitions] | None = field(default=None)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions]


@message(api_key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch and the partitions it should own."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = field(default=None)
