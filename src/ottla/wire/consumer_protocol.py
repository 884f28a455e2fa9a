"""Metadata that classic consumers and their group's leader exchange through JoinGroup and SyncGroup.

The broker does not read these bytes.
"""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bytes, Int32, String


@struct
class TopicPartition:
    topic: String
    partitions: list[Int32]


@message(versions=(0, 3))
class ConsumerProtocolSubscription:
    """Sent by a joining consumer to its group's leader: subscribed topics, owned partitions."""

    topics: list[String]
    user_data: Bytes | None = field(default=None)
    owned_partitions: list[TopicPartition] = field(since=1, default=[], ignorable=True)
    generation_id: Int32 = field(since=2, default=-1, ignorable=True)
    rack_id: String | None = field(since=3, default=None, ignorable=True)


@message(versions=(0, 3))
class ConsumerProtocolAssignment:
    """Sent by a group's leader to a consumer: its partitions."""

    assigned_partitions: list[TopicPartition]
    user_data: Bytes | None = field(default=None)
