"""Records of `__consumer_offsets`: committed offsets and classic groups."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import NO_UUID, Bytes, Int32, Int64, String, Uuid


@message(record_type=0, versions=(0, 0))
class LegacyOffsetCommitKey:
    """Key of a committed offset in the oldest format."""

    group: String
    topic: String
    partition: Int32


@message(record_type=0, versions=(0, 0))
class LegacyOffsetCommitValue:
    """A committed offset in the oldest format."""

    offset: Int64
    metadata: String
    commit_timestamp: Int64


@message(record_type=1, versions=(0, 0))
class OffsetCommitKey:
    """Key of a committed offset in `__consumer_offsets`."""

    group: String
    topic: String
    partition: Int32


@message(record_type=1, versions=(0, 4), flexible=4)
class OffsetCommitValue:
    """A committed offset."""

    offset: Int64
    leader_epoch: Int32 = field(since=3, default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = field(since=1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = field(since=4, tag=0, default=NO_UUID, ignorable=True)


@message(record_type=2, versions=(0, 0))
class GroupMetadataKey:
    """Key of a classic group in `__consumer_offsets`."""

    group: String


@struct
class MemberMetadata:
    member_id: String
    group_instance_id: String | None = field(since=3, default=None, ignorable=True)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = field(since=1, default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message(record_type=2, versions=(0, 4), flexible=4)
class GroupMetadataValue:
    """A classic group: its generation, protocol and members."""

    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = field(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata]
