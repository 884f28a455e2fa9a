"""Reads the files of a partition as a stream of items, in bounded memory."""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from ottla import kernel
from ottla.cli.errors import UserError
from ottla.cli.log.internal_topics import decoded
from ottla.cli.log.items import Item
from ottla.cli.log.paths import FileKind, LogFile, PartitionOnDisk
from ottla.core.log import checkpoints, files
from ottla.core.log.indexes import OFFSET_ENTRY, TIME_ENTRY, BadIndex, decode_aborted
from ottla.core.log.snapshots import BadProducerSnapshot, decode_snapshot
from ottla.core.log.summary import UNKNOWN, BadSummary, decode_summary
from ottla.io.ports import Disk, File
from ottla.kernel import BatchHeader, CorruptBatch, Record
from ottla.storage.batches import BatchAt, BatchWalk
from ottla.wire.uuids import uuid_to_text

_CHUNK_ENTRIES = 8192


class DumpOptions(NamedTuple):
    """The part of a log to show. Bounds are inclusive offsets."""

    records: bool = False
    indexes: bool = False
    start: int | None = None
    end: int | None = None
    limit: int | None = None

    def touches(self, first: int, last: int) -> bool:
        return (self.start is None or last >= self.start) and (self.end is None or first <= self.end)


def dump(disk: Disk, target: PartitionOnDisk | LogFile, wanted: DumpOptions) -> Iterator[Item]:
    yield from (
        _dump_partition(disk, target, wanted)
        if isinstance(target, PartitionOnDisk)
        else dump_file(disk, target, wanted)
    )


def _dump_partition(disk: Disk, partition: PartitionOnDisk, wanted: DumpOptions) -> Iterator[Item]:
    place = files.parse_directory(partition.name)
    yield Item(
        "partition",
        partition.name,
        {"topic": place.topic, "partition": place.partition, "fate": place.fate or None} if place else {},
    )
    for kind in (FileKind.PARTITION, FileKind.EPOCHS):
        for file in partition.of(kind):
            yield from dump_file(disk, file, wanted)
    for file in partition.of(FileKind.PRODUCERS)[-1:]:
        yield from dump_file(disk, file, wanted)
    sizes = disk.scan(partition.path)
    segments = partition.segments()
    for segment in segments:
        yield Item("segment", segment.name, _segment_sizes(segment, sizes))
    if wanted.indexes:
        for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX):
            for file in partition.of(kind):
                yield from dump_file(disk, file, wanted)
    yield from _limited(_dump_segments(disk, segments, wanted), wanted)


def _dump_segments(disk: Disk, segments: list[LogFile], wanted: DumpOptions) -> Iterator[Item]:
    following = [segment.base_offset for segment in segments[1:]]
    for segment, next_base in zip(segments, [*following, None], strict=True):
        # The next segment's name bounds this one's offsets: whole segments are skipped without reading.
        if wanted.touches(segment.base_offset, next_base - 1 if next_base is not None else 2**63):
            yield from _dump_log(disk, segment, wanted)


def _segment_sizes(segment: LogFile, sizes: dict[str, int]) -> dict[str, int | None]:
    stem = segment.name.removesuffix(files.LOG)
    by_kind = {kind.lstrip("."): sizes.get(stem + kind) for kind in (*files.INDEXES, files.SNAPSHOT)}
    return {"base_offset": segment.base_offset, "bytes": sizes.get(segment.name, 0), **by_kind}


def dump_file(disk: Disk, file: LogFile, wanted: DumpOptions) -> Iterator[Item]:
    if file.kind is FileKind.LOG:
        for item in _limited(_dump_log(disk, file, wanted), wanted):
            if item.kind == "damage" and item.fields["position"] == 0:
                reason = item.fields["reason"]
                raise UserError(f"{file.path}: does not begin with a record batch of Kafka's: {reason}")
            yield item
    else:
        try:
            yield from _READERS[file.kind](disk, file)
        except (BadIndex, BadProducerSnapshot, BadSummary, checkpoints.BadCheckpoint) as error:
            yield Item("damage", file.name, {"position": None, "reason": str(error)})


def _limited(items: Iterator[Item], wanted: DumpOptions) -> Iterator[Item]:
    counted = "record" if wanted.records else "batch"
    left = wanted.limit
    for item in items:
        if left == 0 and item.kind in ("batch", "record"):
            return
        if left is not None and item.kind == counted:
            left -= 1
        yield item


# Logs


def _dump_log(disk: Disk, file: LogFile, wanted: DumpOptions) -> Iterator[Item]:
    opened = disk.open(file.path, writable=False)
    try:
        walk = BatchWalk(opened, opened.size())
        for batch in walk:
            header = batch.header
            if wanted.end is not None and header.base_offset > wanted.end:
                return
            if wanted.touches(header.base_offset, header.last_offset):
                yield from _dump_batch(file, batch, wanted)
        if walk.damage:
            yield Item("damage", file.name, walk.damage._asdict())
    finally:
        opened.close()


def _dump_batch(file: LogFile, batch: BatchAt, wanted: DumpOptions) -> Iterator[Item]:
    header = batch.header
    try:
        yield Item("batch", file.name, _batch_fields(batch))
        if wanted.records:
            for record in kernel.read_records(batch.data, header):
                if wanted.touches(record.offset, record.offset):
                    yield Item("record", file.name, _record_fields(file, header, record))
    except CorruptBatch as error:
        yield Item("damage", file.name, {"position": batch.position, "reason": error.text})


def _record_fields(file: LogFile, header: BatchHeader, record: Record) -> dict[str, object]:
    said = None if header.is_control else decoded(file.topic, record)
    return {**record._asdict(), **({"decoded": said} if said else {})}


def _batch_fields(batch: BatchAt) -> dict[str, object]:
    header = batch.header
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "position": batch.position,
        "bytes": header.size,
        "records": header.count,
        "codec": header.codec.name.lower(),
        "crc": header.crc,
        "crc_valid": kernel.crc_ok(batch.data, 0, header.size),
        "leader_epoch": header.leader_epoch,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.timestamp_type else "CreateTime",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": _control(batch) if header.is_control and header.count else None,
        "delete_horizon": header.delete_horizon_ms,
    }


def _control(batch: BatchAt) -> str:
    try:
        return kernel.read_control(batch.data)[0].name
    except CorruptBatch:
        return "UNREADABLE"


# Indexes


def entries(opened: File, entry: Struct) -> Iterator[tuple[int, ...]]:
    """The entries in use. Kafka preallocates the active segment's indexes: unused entries are zero."""
    chunk = _CHUNK_ENTRIES * entry.size
    unused = 0
    for position in range(0, opened.size() - entry.size + 1, chunk):
        data = opened.read(position, chunk)
        for fields in entry.iter_unpack(data[: len(data) - len(data) % entry.size]):
            if any(fields):
                # Zeros between entries are not preallocated space: show them.
                yield from ((0,) * len(fields) for _ in range(unused))
                unused = 0
                yield fields
            elif position == 0 and opened.size() == entry.size:
                yield fields
            else:
                unused += 1


def _offset_index(disk: Disk, file: LogFile) -> Iterator[Item]:
    for relative, position in _entries_of(disk, file, OFFSET_ENTRY):
        yield Item("offset entry", file.name, {"offset": file.base_offset + relative, "position": position})


def _time_index(disk: Disk, file: LogFile) -> Iterator[Item]:
    for timestamp, relative in _entries_of(disk, file, TIME_ENTRY):
        yield Item("time entry", file.name, {"timestamp": timestamp, "offset": file.base_offset + relative})


def _entries_of(disk: Disk, file: LogFile, entry: Struct) -> Iterator[tuple[int, ...]]:
    opened = disk.open(file.path, writable=False)
    try:
        yield from entries(opened, entry)
    finally:
        opened.close()


def _txn_index(disk: Disk, file: LogFile) -> Iterator[Item]:
    for aborted in decode_aborted(read_whole(disk, file)):
        yield Item("aborted transaction", file.name, aborted._asdict())


# Small files


def _epochs(disk: Disk, file: LogFile) -> Iterator[Item]:
    for epoch in checkpoints.decode_epochs(read_whole(disk, file)):
        yield Item("leader epoch", file.name, epoch._asdict())


def _producers(disk: Disk, file: LogFile) -> Iterator[Item]:
    for producer in decode_snapshot(read_whole(disk, file)):
        fields = {
            "producer_id": producer.producer_id,
            "epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.last_data_offset,
            "last_timestamp": producer.last_timestamp,
            "coordinator_epoch": producer.coordinator_epoch,
            "txn_first_offset": producer.txn_first_offset,
        }
        yield Item("producer", file.name, fields)


def _offsets(disk: Disk, file: LogFile) -> Iterator[Item]:
    for (topic, partition), offset in checkpoints.decode_offsets(read_whole(disk, file)).items():
        yield Item("checkpoint", file.name, {"topic": topic, "partition": partition, "offset": offset})


def _partition_metadata(disk: Disk, file: LogFile) -> Iterator[Item]:
    topic_id = checkpoints.decode_partition_metadata(read_whole(disk, file))
    yield Item("metadata", file.name, {"topic_id": uuid_to_text(topic_id)})


def _meta_properties(disk: Disk, file: LogFile) -> Iterator[Item]:
    meta = checkpoints.MetaProperties.decode(read_whole(disk, file))
    directory_id = uuid_to_text(meta.directory_id) if meta.directory_id else None
    fields = {"cluster_id": meta.cluster_id, "node_id": meta.node_id, "directory_id": directory_id}
    yield Item("metadata", file.name, fields)


def _summary(disk: Disk, file: LogFile) -> Iterator[Item]:
    header, entries = decode_summary(read_whole(disk, file))
    yield Item("metadata", file.name, {"end_offset": header.end_offset, "leader_epoch": header.leader_epoch})
    for entry in entries:
        checksum = None if entry.txn_checksum == UNKNOWN else entry.txn_checksum
        yield Item("segment summary", file.name, entry._asdict() | {"txn_checksum": checksum})


def read_whole(disk: Disk, file: LogFile) -> bytes:
    opened = disk.open(file.path, writable=False)
    try:
        return opened.read(0, opened.size())
    finally:
        opened.close()


_READERS: dict[FileKind, Callable[[Disk, LogFile], Iterator[Item]]] = {
    FileKind.OFFSET_INDEX: _offset_index,
    FileKind.TIME_INDEX: _time_index,
    FileKind.TXN_INDEX: _txn_index,
    FileKind.PRODUCERS: _producers,
    FileKind.EPOCHS: _epochs,
    FileKind.OFFSETS: _offsets,
    FileKind.PARTITION: _partition_metadata,
    FileKind.DIRECTORY: _meta_properties,
    FileKind.SUMMARY: _summary,
}
