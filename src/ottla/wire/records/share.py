"""Records of `__share_group_state`."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Int8, Int16, Int32, Int64, String, Uuid


@message(record_type=0, versions=(0, 0))
class ShareSnapshotKey:
    """Key of the whole state of a share partition in `__share_group_state`."""

    group_id: String
    topic_id: Uuid
    partition: Int32


@struct
class StateBatch:
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message(record_type=0, versions=(0, 0), flexible=0)
class ShareSnapshotValue:
    """The whole state of a share partition."""

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StateBatch]


@message(record_type=1, versions=(0, 0))
class ShareUpdateKey:
    """Key of a change of a share partition's state since its last snapshot."""

    group_id: String
    topic_id: Uuid
    partition: Int32


@message(record_type=1, versions=(0, 0), flexible=0)
class ShareUpdateValue:
    """A change of a share partition's state since its last snapshot."""

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    state_batches: list[StateBatch]
