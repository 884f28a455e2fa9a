"""Checks the files of a partition against each other, in bounded memory and without changing anything.

Rule 1: every batch has a correct checksum; its records can be read, and their number, timestamps and offsets match its
        header.
Rule 2: offsets rise from batch to batch and from segment to segment; leader epochs never fall.
Rule 3: every index, snapshot and checkpoint agrees with the log (`index_checks` has the rules of the indexes).
Rule 4: a missing file that would be rebuilt, or a file of an operation in progress, is noted and does not fail the
        check.
"""

from collections.abc import Iterator

from ottla import kernel
from ottla.cli.log.dump import entries, read_whole
from ottla.cli.log.findings import CUT, FROM_REPLICA, REBUILD, CheckedCounts, Finding
from ottla.cli.log.index_checks import OffsetIndexCheck, TimeIndexCheck, TxnIndexCheck
from ottla.cli.log.paths import FileKind, LogFile, PartitionOnDisk, recognised
from ottla.core.log import checkpoints, files
from ottla.core.log.checkpoints import BadCheckpoint, EpochStart
from ottla.core.log.indexes import OFFSET_ENTRY, TIME_ENTRY, BadIndex, decode_aborted
from ottla.core.log.producers import Producers
from ottla.core.log.snapshots import BadProducerSnapshot, decode_snapshot
from ottla.core.log.summary import BadSummary, decode_summary
from ottla.io.ports import Disk, File
from ottla.kernel import CorruptBatch, TimestampType
from ottla.storage.batches import BatchAt, BatchWalk


def verify(disk: Disk, target: PartitionOnDisk | LogFile, tally: CheckedCounts) -> Iterator[Finding]:
    if isinstance(target, PartitionOnDisk):
        yield from _loose_ends(target)
        yield from _verify_log(disk, target, tally)
        for kind in (FileKind.PRODUCERS, FileKind.PARTITION, FileKind.SUMMARY):
            for file in target.of(kind):
                yield from _verify_small(disk, file)
    elif target.kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX):
        yield from _verify_log(disk, _family(disk, target), tally)
    else:
        yield from _verify_small(disk, target)


def _family(disk: Disk, file: LogFile) -> PartitionOnDisk:
    """A single file of a segment with the files it is checked against: the log and the indexes of the same name."""
    directory, _, name = file.path.rpartition("/")
    names = [name]
    if files.parse_file(name):
        names = [files.file_name(file.base_offset, kind, file.suffix) for kind in files.SEGMENT_KINDS]
    paths = [f"{directory}/{one}" for one in names]
    found = [one for path in paths if disk.exists(path) and (one := recognised(path))]
    return PartitionOnDisk(directory, [one._replace(suffix="") for one in found], [])


def _loose_ends(partition: PartitionOnDisk) -> Iterator[Finding]:
    meanings = {
        files.DELETED: "out of use and about to be removed",
        files.CLEANED: "left by a compaction that did not end",
        files.SWAP: "a compacted segment on its way to replace others",
    }
    for suffix, meaning in meanings.items():
        names = [file.name for file in partition.files if file.suffix == suffix]
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield _note(names[0] + more, meaning, "Nothing to do: the broker deals with it at its next start.")
    for name in partition.unknown:
        yield _note(name, "not a file of a log", "Find out who put it here; brokers leave it alone.")
    segments = {segment.base_offset for segment in partition.segments()}
    for kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX):
        indexes = partition.of(kind)
        for file in indexes:
            if file.base_offset not in segments:
                yield _note(file.name, "an index without its log", "Nothing to do: the broker removes it.")
        if kind is not FileKind.TXN_INDEX:
            for base_offset in sorted(segments - {file.base_offset for file in indexes}):
                name = files.file_name(base_offset, files.LOG)
                yield _note(name, f"has no {kind.value}", "Nothing to do: it is rebuilt at the next start.")


def _verify_log(disk: Disk, partition: PartitionOnDisk, tally: CheckedCounts) -> Iterator[Finding]:
    logs = partition.of(FileKind.LOG)
    checker = LogCheck(disk, partition, tally)
    for log in logs:
        yield from checker.on_segment(log)
    if not logs:
        for file in partition.files:
            yield from SegmentIndexes(disk, partition, file.base_offset).finish(without_log=True)
    for file in partition.of(FileKind.EPOCHS):
        yield from _verify_epochs(disk, file, checker.epochs)


class LogCheck:
    """The state of the check from segment to segment."""

    def __init__(self, disk: Disk, partition: PartitionOnDisk, tally: CheckedCounts) -> None:
        self._disk = disk
        self._partition = partition
        self._tally = tally
        self._last_offset = -1
        self.epochs: list[EpochStart] = []
        """The first offset of each leader epoch, according to the batches."""
        self._producers = self._producers_before(partition.of(FileKind.LOG))

    def _producers_before(self, logs: list[LogFile]) -> Producers:
        """The producer state before the first segment: a transaction may have begun in a segment that retention
        removed."""
        first = logs[0].base_offset if logs else 0
        for file in self._partition.of(FileKind.PRODUCERS):
            if file.base_offset == first:
                try:
                    return Producers.restore("", first, decode_snapshot(read_whole(self._disk, file)))
                except BadProducerSnapshot:
                    break  # Reported when snapshots are checked.
        return Producers("", first)

    def on_segment(self, log: LogFile) -> Iterator[Finding]:
        opened = self._disk.open(log.path, writable=False)
        indexes = SegmentIndexes(self._disk, self._partition, log.base_offset)
        self._tally.segments += 1
        self._tally.bytes += opened.size()
        try:
            walk = BatchWalk(opened, opened.size())
            for batch in walk:
                self._tally.batches += 1
                self._tally.records += batch.header.count
                yield from self._on_batch(log, batch)
                yield from indexes.on_batch(batch)
                if kernel.crc_ok(batch.data, 0, batch.header.size):
                    yield from self._on_contents(log, batch, indexes)
                else:
                    found = kernel.batch_crc(batch.data, 0, batch.header.size)
                    what = f"the batch carries CRC {batch.header.crc:08x}, its bytes give {found:08x}"
                    yield Finding(log.name, what, self._advice(log), batch.position)
            if walk.damage:
                yield Finding(log.name, walk.damage.reason, self._advice(log), walk.damage.position)
            # Entries that point past the damage may be right about the undamaged log.
            yield from indexes.finish(without_log=walk.damage is not None)
        finally:
            opened.close()
            indexes.close()

    def _advice(self, log: LogFile) -> str:
        """Only the last segment may be torn by a crash: the others were complete when it was created."""
        return CUT if log.base_offset == self._partition.of(FileKind.LOG)[-1].base_offset else FROM_REPLICA

    def _on_batch(self, log: LogFile, batch: BatchAt) -> Iterator[Finding]:
        header = batch.header
        floor = max(self._last_offset + 1, log.base_offset)
        if header.base_offset < floor:
            reason = (
                f"the segment begins at {log.base_offset}"
                if self._last_offset < log.base_offset
                else f"offset {self._last_offset} came before"
            )
            yield Finding(
                log.name, f"a batch has offset {header.base_offset}, but {reason}", FROM_REPLICA, batch.position
            )
        self._last_offset = max(self._last_offset, header.last_offset)
        yield from self._on_epoch(log, batch)

    def _on_epoch(self, log: LogFile, batch: BatchAt) -> Iterator[Finding]:
        header = batch.header
        latest = self.epochs[-1].epoch if self.epochs else -1
        if header.leader_epoch > latest:
            self.epochs.append(EpochStart(header.leader_epoch, header.base_offset))
        elif 0 <= header.leader_epoch < latest:
            what = f"leader epoch {header.leader_epoch} follows epoch {latest}"
            yield Finding(log.name, what, FROM_REPLICA, batch.position)

    def _on_contents(self, log: LogFile, batch: BatchAt, indexes: "SegmentIndexes") -> Iterator[Finding]:
        header = batch.header
        yield from (Finding(log.name, what, FROM_REPLICA, batch.position) for what in _record_faults(batch))
        if header.producer_id < 0:
            return
        if not header.is_control:
            self._producers.replay(header, None)
            return
        try:
            marker = kernel.read_end_txn_marker(batch.data)
        except CorruptBatch as error:
            # Compaction may have removed the marker and kept its empty batch for the producer state.
            if header.count:
                yield Finding(log.name, error.text, FROM_REPLICA, batch.position)
            return
        completed = self._producers.replay(header, marker)
        yield from indexes.txns.on_marker(header, marker, completed)


def _record_faults(batch: BatchAt) -> Iterator[str]:
    header = batch.header
    try:
        records = kernel.read_records(batch.data, header)
    except CorruptBatch as error:
        yield error.text
        return
    before = header.base_offset - 1
    for record in records:
        if not before < record.offset <= header.last_offset:
            yield f"record {record.offset} follows {before} in a batch of {header.base_offset} to {header.last_offset}"
            return
        before = record.offset
    if records and header.timestamp_type is TimestampType.CREATE_TIME:
        latest = max(record.timestamp for record in records)
        if latest != header.max_timestamp:
            yield f"the batch says its latest time is {header.max_timestamp}, its records say {latest}"


class SegmentIndexes:
    """The indexes of one segment, checked in parallel with its log."""

    def __init__(self, disk: Disk, partition: PartitionOnDisk, base_offset: int) -> None:
        self._opened: list[File] = []
        self._faults: list[Finding] = []
        self._sorted: list[OffsetIndexCheck | TimeIndexCheck] = []
        aborted = []
        txn_name = files.file_name(base_offset, files.TXN_INDEX)
        for file in partition.files:
            if file.base_offset != base_offset or file.suffix:
                continue
            if file.kind is FileKind.OFFSET_INDEX:
                self._sorted.append(
                    OffsetIndexCheck(file.name, base_offset, entries(self._open(disk, file), OFFSET_ENTRY))
                )
            elif file.kind is FileKind.TIME_INDEX:
                self._sorted.append(TimeIndexCheck(file.name, base_offset, entries(self._open(disk, file), TIME_ENTRY)))
            elif file.kind is FileKind.TXN_INDEX:
                txn_name = file.name
                try:
                    aborted = decode_aborted(read_whole(disk, file))
                except BadIndex as error:
                    self._faults.append(Finding(file.name, str(error), REBUILD))
        self.txns = TxnIndexCheck(txn_name, aborted)

    def _open(self, disk: Disk, file: LogFile) -> File:
        opened = disk.open(file.path, writable=False)
        self._opened.append(opened)
        entry_size = OFFSET_ENTRY.size if file.kind is FileKind.OFFSET_INDEX else TIME_ENTRY.size
        if opened.size() % entry_size:
            what = f"{opened.size()} bytes are no multiple of {entry_size}, the size of an entry"
            self._faults.append(Finding(file.name, what, REBUILD))
        return opened

    def on_batch(self, batch: BatchAt) -> Iterator[Finding]:
        for check in self._sorted:
            yield from check.on_batch(batch)

    def finish(self, *, without_log: bool) -> Iterator[Finding]:
        """The remaining findings, after all batches. `without_log`: the log was not read to its end, so index entries
        for its end are not checked."""
        yield from self._faults
        if not without_log:
            for check in (*self._sorted, self.txns):
                yield from check.on_end()

    def close(self) -> None:
        for opened in self._opened:
            opened.close()


def _verify_epochs(disk: Disk, file: LogFile, seen: list[EpochStart]) -> Iterator[Finding]:
    try:
        written = checkpoints.decode_epochs(read_whole(disk, file))
    except BadCheckpoint as error:
        yield Finding(file.name, str(error), REBUILD)
        return
    starts = dict(written)
    for epoch, first_offset in seen:
        # Epochs below the first one written lie before the log start and were removed on purpose.
        if written and epoch < written[0].epoch:
            continue
        if epoch not in starts:
            yield Finding(
                file.name, f"epoch {epoch} begins at offset {first_offset} of the log and is missing", REBUILD
            )
        elif starts[epoch] > first_offset and epoch != written[0].epoch:
            what = (
                f"epoch {epoch} is said to begin at offset {starts[epoch]}, but the log has it from {first_offset} on"
            )
            yield Finding(file.name, what, REBUILD)


def _verify_small(disk: Disk, file: LogFile) -> Iterator[Finding]:
    data = read_whole(disk, file)
    try:
        match file.kind:
            case FileKind.PRODUCERS:
                decode_snapshot(data)
            case FileKind.EPOCHS:
                checkpoints.decode_epochs(data)
            case FileKind.OFFSETS:
                checkpoints.decode_offsets(data)
            case FileKind.PARTITION:
                checkpoints.decode_partition_metadata(data)
            case FileKind.DIRECTORY:
                checkpoints.MetaProperties.decode(data)
            case FileKind.SUMMARY:
                decode_summary(data)
    except (BadProducerSnapshot, BadCheckpoint, BadSummary) as error:
        yield Finding(file.name, str(error), REBUILD)


def _note(file: str, what: str, advice: str) -> Finding:
    return Finding(file, what, advice, problem=False)
