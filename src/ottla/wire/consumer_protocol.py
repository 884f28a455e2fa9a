"""What classic consumers and the leader of their group tell each other through JoinGroup and SyncGroup.

The broker passes these bytes on unread.
"""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bytes, Int32, String


@struct
class TopicPartition:
    topic: String
    partitions: list[Int32]


@message(versions=(0, 3))
class ConsumerProtocolSubscription:
    """What a consumer tells its group's leader when it joins: topics wanted, partitions held."""

    topics: list[String]
    user_data: Bytes | None = field(default=None)
    owned_partitions: list[TopicPartition] = field(since=1, default=[], ignorable=True)
    generation_id: Int32 = field(since=2, default=-1, ignorable=True)
    rack_id: String | None = field(since=3, default=None, ignorable=True)


@message(versions=(0, 3))
class ConsumerProtocolAssignment:
    """What a group's leader gives a consumer: its partitions."""

    assigned_partitions: list[TopicPartition]
    user_data: Bytes | None = field(default=None)
