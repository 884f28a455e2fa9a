"""The ShareGroupDescribe API, all versions."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int16, Int32, String, Uuid


@message(api_key=77, versions=(1, 1), flexible=0, listeners=("broker",))
class ShareGroupDescribeRequest:
    """Ask for the state and members of share groups."""

    group_ids: list[String]
    include_authorized_operations: Bool


@struct
class TopicPartitions:
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


@struct
class Assignment:
    topic_partitions: list[TopicPartitions]


@struct
class Member:
    member_id: String
    rack_id: String | None = field(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    assignment: Assignment


@struct
class DescribedGroup:
    error_code: Int16
    error_message: String | None = field(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[Member]
    authorized_operations: Int32 = field(default=-(2**31))


@message(api_key=77, versions=(1, 1), flexible=0)
class ShareGroupDescribeResponse:
    """The state and members of share groups."""

    throttle_time_ms: Int32
    groups: list[DescribedGroup]
