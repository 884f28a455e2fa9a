"""Files beside a log, and the records of `__remote_log_metadata`."""

from ottla.wire.schema import field, message, struct
from ottla.wire.types import Bool, Bytes, Int8, Int16, Int32, Int64, String, UInt32, Uuid


@struct
class ProducerEntry:
    producer_id: Int64
    epoch: Int16
    last_sequence: Int32
    last_offset: Int64
    offset_delta: Int32
    timestamp: Int64
    coordinator_epoch: Int32  # The epoch in the last marker of the producer.
    current_txn_first_offset: Int64  # -1 if no transaction is open.


@message(versions=(1, 1))
class ProducerSnapshot:
    """The state of a partition's producers at an offset: the contents of a `.snapshot` file."""

    crc: UInt32  # CRC-32C of the bytes after it.
    producer_entries: list[ProducerEntry]


@struct
class TopicIdPartitionEntry:
    name: String
    id: Uuid
    partition: Int32


@struct
class RemoteLogSegmentIdEntry:
    topic_id_partition: TopicIdPartitionEntry
    id: Uuid


@struct
class SegmentLeaderEpochEntry:
    leader_epoch: Int32
    offset: Int64


@message(record_type=0, versions=(0, 0), flexible=0)
class RemoteLogSegmentMetadataRecord:
    """A segment is being copied to remote storage."""

    remote_log_segment_id: RemoteLogSegmentIdEntry
    start_offset: Int64
    end_offset: Int64
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    segment_leader_epochs: list[SegmentLeaderEpochEntry]
    segment_size_in_bytes: Int32
    custom_metadata: Bytes | None = field(default=None)
    remote_log_segment_state: Int8
    txn_index_empty: Bool = field(tag=0, default=False)


@message(record_type=1, versions=(0, 0), flexible=0)
class RemoteLogSegmentMetadataUpdateRecord:
    """The state of a remote segment changed."""

    remote_log_segment_id: RemoteLogSegmentIdEntry
    broker_id: Int32
    event_timestamp_ms: Int64
    custom_metadata: Bytes | None = field(default=None)
    remote_log_segment_state: Int8


@message(record_type=2, versions=(0, 0), flexible=0)
class RemotePartitionDeleteMetadataRecord:
    """A partition's remote segments are being deleted."""

    topic_id_partition: TopicIdPartitionEntry
    broker_id: Int32
    event_timestamp_ms: Int64
    remote_partition_delete_state: Int8


@message(record_type=3, versions=(0, 0), flexible=0)
class RemoteLogSegmentMetadataSnapshotRecord:
    """A remote segment, as a snapshot of the metadata holds it."""

    segment_id: Uuid
    start_offset: Int64
    end_offset: Int64
    broker_id: Int32
    max_timestamp_ms: Int64
    event_timestamp_ms: Int64
    segment_leader_epochs: list[SegmentLeaderEpochEntry]
    segment_size_in_bytes: Int32
    custom_metadata: Bytes | None = field(default=None)
    remote_log_segment_state: Int8
    txn_index_empty: Bool = field(tag=0, default=False)
