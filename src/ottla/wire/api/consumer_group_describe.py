"""The ConsumerGroupDescribe API, all versions."""

from collections.abc import Sequence

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Int8, Int16, Int32, String, Uuid


@message(api_key=69, versions=(0, 1), flexible=0, listeners=("broker",))
class ConsumerGroupDescribeRequest:
    """Ask for the state and members of groups of the new consumer protocol."""

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
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = field(default=None)
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = field(since=1, default=-1, ignorable=True)


@struct
class DescribedGroup:
    error_code: Int16
    error_message: String | None = field(default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: Sequence[Member]
    authorized_operations: Int32 = field(default=-(2**31))


@message(api_key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse:
    """The state and members of groups of the new consumer protocol."""

    throttle_time_ms: Int32
    groups: list[DescribedGroup]
