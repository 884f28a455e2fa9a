"""Open a log from its files: trust what was closed cleanly, read again what may be torn.

Rule 1: after a clean shutdown only the end of the last segment and the newest snapshot are read. The state recorded
        then must match: the log ends at its recovery point, and every segment is as long as its summary says. If not,
        files were lost and the log is refused: offsets must not be assigned twice.
Rule 2: otherwise the segments from the recovery point on are read again; the first of them only from where it was last
        closed cleanly, as the snapshot of that close tells. The log ends before the first batch that is torn, has a
        wrong CRC, or does not follow the previous one. Indexes and producer state are rebuilt. Readable data after the
        end is moved aside.
Rule 3: below the recovery point every byte had been synced, so a fault there is damage, not a crash. It is never
        repaired by removing acknowledged records: the log is refused, and an operator decides.
Rule 4: a segment begins where the previous one ends. Only the cleaner makes gaps, below the recovery point, and an
        interrupted retention, below the log start. Any other gap means that the end of the earlier segment was lost,
        even if it ends with a whole batch, and whatever `cleanup.policy` says.
Rule 5: recovery is idempotent. A removal by recovery is permanent.
"""

from bisect import bisect_right
from contextlib import suppress
from itertools import zip_longest

from ottla.config import INDEX_INTERVAL_BYTES, PRODUCER_ID_EXPIRATION_MS, Config
from ottla.core.log import files
from ottla.core.log.checkpoints import BadCheckpoint, decode_epochs
from ottla.core.log.epochs import LeaderEpochs
from ottla.core.log.files import file_name, parse_file
from ottla.core.log.indexes import OFFSET_ENTRY, RELATIVE_OFFSET_MAX, TIME_ENTRY, AbortedTxn, BadIndex
from ottla.core.log.producers import Producers
from ottla.core.log.segment import Segment
from ottla.core.log.state import LogState
from ottla.io.ports import Buffer, Clock
from ottla.kernel import BatchHeader, CorruptBatch, EndTxnMarker, crc_ok, read_end_txn_marker
from ottla.observe.trace import warn
from ottla.storage.atomic import read_whole
from ottla.storage.batches import BatchAt, BatchWalk, DamagedAt, LogDamage, find_batch
from ottla.storage.evidence import LastClose, end_fault, segments_fault
from ottla.storage.partition_files import PartitionFiles
from ottla.storage.segment_files import SegmentFiles
from ottla.wire.errors import Error, Refused


class LogDamaged(Refused):
    """Bytes that had been synced are damaged."""

    def __init__(self, text: str) -> None:
        super().__init__(Error.KAFKA_STORAGE_ERROR, text)


def open_log(
    here: PartitionFiles, name: str, config: Config, clock: Clock, left: LastClose, listing: dict[str, int]
) -> LogState:
    """Open the log from its files, repairing them on the way."""
    segments = _segments(listing, clock.wall_ms())
    if not segments:
        _refuse(end_fault(here, left, left.log_start_offset))
        segments = [Segment(left.log_start_offset, created_ms=clock.wall_ms())]
        here.create(segments[0], is_first=True)
    if left.clean and left.by_ottla:
        _refuse(segments_fault(here, segments))
    _drop_orphans(here, listing)
    # Recovery rebuilds the indexes of the segments it reads; a torn segment cannot be indexed before.
    whole = len(segments) if left.clean else _first_to_recover(here, name, segments, left.recovery_point)
    for segment in segments[:whole]:
        if _lacks_index(listing, segment):
            _mend(here.of(segment), config, "its size fits no index")
    epochs = _read_epochs(here, segments)
    epochs_on_disk = list(epochs.entries)
    if left.clean:
        producers, end_offset = _load(here, name, config, left, segments, clock.wall_ms())
    else:
        recovery = _Recovery(here, name, config, left, epochs, clock.wall_ms())
        producers, end_offset = recovery.run(segments, whole)
    _refuse(end_fault(here, left, end_offset))
    log = LogState(name, config, segments, end_offset=end_offset)
    log.producers, log.epochs = producers, epochs
    _settle(here, log, left, clock.wall_ms())
    if log.epochs.entries != epochs_on_disk:
        here.keep_epochs(log.epochs.entries)
    if not left.clean:
        _sync_recovered(here, log, whole)
    return log


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise LogDamaged(fault)


def marker_in(header: BatchHeader, data: Buffer) -> EndTxnMarker | None:
    """The end-of-transaction marker in a batch; None for data, and for a marker that was cleaned away."""
    if not (header.is_control and header.has_producer and header.count):
        return None
    return read_end_txn_marker(data)


def rebuild_producers(
    here: PartitionFiles, name: str, segments: list[Segment], end_offset: int, high_watermark: int
) -> Producers:
    """The producer state at `end_offset`, from the newest snapshot before it and the batches after that.

    A snapshot does not list transactions that ended above the high watermark, which are undecided for readers. If it
    was taken above the watermark, an older snapshot provides them.
    """
    start_offset = segments[0].base_offset
    newest = here.load_snapshot(name, end_offset, start_offset)
    taken_at = newest.end_offset
    producers = _replay(here, newest, segments, end_offset)
    if taken_at > high_watermark:
        earlier = here.load_snapshot(name, high_watermark, start_offset)
        producers.adopt_undecided(_replay(here, earlier, segments, end_offset))
    return producers


def _replay(here: PartitionFiles, producers: Producers, segments: list[Segment], end_offset: int) -> Producers:
    for segment, following in zip_longest(segments, segments[1:]):
        if (
            following is not None and following.base_offset <= producers.end_offset
        ) or segment.base_offset >= end_offset:
            continue
        for batch in _walk_from(here.of(segment), producers.end_offset):
            if producers.end_offset <= batch.header.base_offset < end_offset:
                producers.replay(batch.header, marker_in(batch.header, batch.data))
    producers.end_offset = end_offset
    return producers


def _walk_from(opened: SegmentFiles, offset: int) -> BatchWalk:
    """The batches from the one that contains `offset` on; all of the segment if its index is unusable."""
    size = opened.segment.size
    try:
        found = opened.locate(offset)
    except (BadIndex, CorruptBatch):
        return BatchWalk(opened.log, size)
    return BatchWalk(opened.log, size, start=size if found is None else found.position)


def aborted_in(here: PartitionFiles, name: str, segments: list[Segment]) -> list[AbortedTxn]:
    """The transaction index that the last of these segments should have.

    Called when index and log disagree, so the CRCs must show that the log is not the damaged one.
    """
    last = segments[-1]
    producers = rebuild_producers(here, name, segments, last.base_offset, last.base_offset)
    aborted = []
    for batch in BatchWalk(here.of(last).log, last.size).whole():
        if not crc_ok(batch.data, 0, batch.header.size):
            raise DamagedAt(here.of(last).log, batch.position, "the batch has the wrong CRC")
        completed = producers.replay(batch.header, marker_in(batch.header, batch.data))
        if completed is not None and completed.aborted:
            aborted.append(completed.as_aborted())
    return aborted


def _segments(listing: dict[str, int], now_ms: int) -> list[Segment]:
    """The segments from the names and sizes of their files; nothing is read yet."""
    segments = []
    for name, size in listing.items():
        parsed = parse_file(name)
        if parsed is None or parsed.suffix or parsed.kind != files.LOG:
            continue
        base_offset = parsed.base_offset
        offset_entries = listing.get(file_name(base_offset, files.OFFSET_INDEX), 0) // OFFSET_ENTRY.size
        time_entries = listing.get(file_name(base_offset, files.TIME_INDEX), 0) // TIME_ENTRY.size
        segment = Segment(base_offset, now_ms, size, offset_entries=offset_entries, time_entries=time_entries)
        segment.times_known = False
        segments.append(segment)
    return segments


def _drop_orphans(here: PartitionFiles, listing: dict[str, int]) -> None:
    """Remove index files without a log: a crash left them of a segment that was just created or being removed."""
    for name in listing:
        parsed = parse_file(name)
        is_index = parsed is not None and not parsed.suffix and parsed.kind in files.INDEXES
        if parsed is not None and is_index and file_name(parsed.base_offset, files.LOG) not in listing:
            here.disk.remove(f"{here.path}/{name}")


def _first_to_recover(here: PartitionFiles, name: str, segments: list[Segment], recovery_point: int) -> int:
    """The index of the recovery point's segment. If the segment begins there, the previous one's indexes may be
    unsynced, unless the snapshot between the two exists (Rule 5 of `partition_files`)."""
    index = bisect_right(segments, recovery_point, key=lambda one: one.base_offset) - 1
    if index > 0 and segments[index].base_offset == recovery_point and here.snapshot_at(name, recovery_point) is None:
        return index - 1
    return max(index, 0)


def _sync_recovered(here: PartitionFiles, log: LogState, first: int) -> None:
    """Sync the closed segments that were read again, so that the next crash leaves less to read."""
    closed = log.segments[first:-1]
    for segment in closed:
        here.of(segment).sync(indexes=True)
    if closed:
        sync = here.begin_sync()
        sync.run()
        sync.settle()
        log.flushed(log.active.base_offset)


def _lacks_index(listing: dict[str, int], segment: Segment) -> bool:
    """Whether an index is missing or ends in the middle of an entry."""
    sizes = ((files.OFFSET_INDEX, OFFSET_ENTRY.size), (files.TIME_INDEX, TIME_ENTRY.size))
    return segment.size > 0 and any(
        listing.get(file_name(segment.base_offset, kind), 1) % entry_size for kind, entry_size in sizes
    )


def _mend(opened: SegmentFiles, config: Config, reason: object) -> None:
    warn("index.rebuilt", path=opened.log.path, reason=reason)
    try:
        opened.mend(config)
    except CorruptBatch as error:
        raise LogDamaged(error.text) from error


def _read_epochs(here: PartitionFiles, segments: list[Segment]) -> LeaderEpochs:
    path = f"{here.path}/{files.LEADER_EPOCHS}"
    data = read_whole(here.disk, path)
    try:
        return LeaderEpochs(decode_epochs(data) if data is not None else [])
    except BadCheckpoint as error:
        warn("epochs.rebuilt", path=path, reason=error)
    epochs = LeaderEpochs()
    for segment in segments:
        for batch in BatchWalk(here.of(segment).log, segment.size):
            if batch.header.leader_epoch > epochs.latest:
                epochs.assign(batch.header.leader_epoch, batch.header.base_offset)
    return epochs


def _load(
    here: PartitionFiles, name: str, config: Config, left: LastClose, segments: list[Segment], now_ms: int
) -> tuple[Producers, int]:
    """Producer state and end of a log that was closed cleanly."""
    last = here.of(segments[-1])
    try:
        try:
            end = last.end()
        except BadIndex as error:
            _mend(last, config, error)
            end = last.end()
        if end.damage is not None:
            # Future offsets are assigned from here, so a damaged header is trusted only if other files agree.
            if end.offset != (left.recovery_point or max(here.snapshots, default=0)):
                raise end.damage
            warn("log.damaged", log=name, end_offset=end.offset, error=end.damage.text)
            # The damage is below the recovery point from now on, so no recovery has to read past it.
            segments.append(Segment(end.offset, created_ms=now_ms))
            here.create(segments[-1])
        high_watermark = max(left.high_watermark, left.log_start_offset)
        return rebuild_producers(here, name, segments, end.offset, high_watermark), end.offset
    except BadIndex as error:
        raise LogDamaged(f"{last.log.path} is damaged: {error}") from error
    except CorruptBatch as error:
        raise LogDamaged(error.text) from error


def _settle(here: PartitionFiles, log: LogState, left: LastClose, now_ms: int) -> None:
    """Adapt the files beside the batches to where the log really begins and ends."""
    if left.log_start_offset > log.end_offset:
        # All records up to the log start were deleted on request, and a power loss took the end of the log.
        here.drop_summary()
        aside = here.set_aside(log.segments, now_ms)
        warn(
            "log.restarted",
            log=log.name,
            end_offset=log.end_offset,
            log_start_offset=left.log_start_offset,
            set_aside=aside,
        )
        log.restarted(Segment(left.log_start_offset, created_ms=now_ms))
        here.create(log.active, is_first=True)
        here.write_epochs([])
    log.log_start_offset = max(left.log_start_offset, log.segments[0].base_offset)
    log.recovery_point = log.end_offset if left.clean else min(left.recovery_point, log.end_offset)
    log.high_watermark = log.log_start_offset
    log.advance_high_watermark(left.high_watermark)
    log.producers.on_high_watermark(log.high_watermark)
    # An epoch that began at the very end and wrote nothing stays (KAFKA-7415).
    log.epochs.truncate_end(log.end_offset + 1)
    log.epochs.truncate_start(log.log_start_offset)
    newest = max((offset for offset in here.snapshots if offset <= log.end_offset), default=None)
    in_use = {segment.base_offset for segment in log.segments} | {newest}
    here.drop_snapshots(lambda offset: offset > log.end_offset or offset not in in_use)
    log.producers.expire(now_ms, log.config[PRODUCER_ID_EXPIRATION_MS])
    active = here.of(log.active)
    try:
        active.load_times()
    except BadIndex as error:
        _mend(active, log.config, error)
    with suppress(CorruptBatch):  # A read reports it; until then time-based rolling counts from now.
        active.load_first_timestamp()


class _Recovery:
    """Reads again the segments that may be torn, from the one with the recovery point on."""

    def __init__(
        self, here: PartitionFiles, name: str, config: Config, left: LastClose, epochs: LeaderEpochs, now_ms: int
    ) -> None:
        self._now_ms = now_ms
        self._here = here
        self._name = name
        self._index_interval_bytes = config[INDEX_INTERVAL_BYTES]
        self._recovery_point = left.recovery_point
        self._log_start_offset = left.log_start_offset
        self._high_watermark = max(left.high_watermark, left.log_start_offset)
        self._epochs = epochs
        self._cleaned_up_to = left.cleaned_up_to
        self._gaps_are_legal_below = max(left.recovery_point, left.cleaned_up_to, left.log_start_offset)

    def run(self, segments: list[Segment], first: int) -> tuple[Producers, int]:
        """Read segments again from `first` on; returns producer state and log end. Unusable segments are removed from
        the list."""
        end_offset, counted = self._left_cleanly(segments, first)
        try:
            producers = rebuild_producers(
                self._here, self._name, segments[: first + 1], end_offset, self._high_watermark
            )
            for index in range(first, len(segments)):
                if not self._follows(segments[index], end_offset, is_first=index == first):
                    self._drop(segments, index, f"segment {segments[index].base_offset} does not follow {end_offset}")
                    break
                if index > first:
                    producers = self._at_segment(segments[index].base_offset, end_offset, producers)
                    producers.end_offset = segments[index].base_offset
                    self._here.keep_snapshot(producers)
                end_offset, damage = self._read(segments[index], end_offset, producers, counted)
                counted = None
                if damage is not None:
                    self._drop(segments, index + 1, damage.reason)
                    break
                if index + 1 < len(segments):
                    self._here.of(segments[index]).finish_indexes()
        except CorruptBatch as error:
            raise LogDamaged(error.text) from error
        producers.end_offset = end_offset
        return producers, end_offset

    def _left_cleanly(self, segments: list[Segment], first: int) -> tuple[int, Segment | None]:
        """How far the first segment was synced with its indexes, and its statistics up to there (Rule 2).

        A snapshot inside a segment was written when the log was closed, after the indexes had been synced. One at its
        end belongs to the next segment.
        """
        segment = segments[first]
        end = segments[first + 1].base_offset if first + 1 < len(segments) else self._recovery_point + 1
        inside = [
            one for one in self._here.snapshots if segment.base_offset < one < end and one <= self._recovery_point
        ]
        if inside and self._here.snapshot_at(self._name, inside[-1]) is not None:
            counted = self._here.of(segment).keep_before(inside[-1])
            if counted is not None:
                return inside[-1], counted
        return segment.base_offset, None

    def _at_segment(self, base_offset: int, end_offset: int, producers: Producers) -> Producers:
        """The producer state at the start of a segment; the previous segment ended at `end_offset`.

        The snapshot there knows more than the batches before it, some of which retention and the cleaner may have
        removed. It is trusted if it was synced before they could. Without it, a gap that only the log start makes legal
        is a loss: the producer state from the batches before the gap is outdated and would refuse the producer's next
        batch.
        """
        if base_offset > max(self._recovery_point, self._log_start_offset):
            return producers
        kept = self._here.snapshot_at(self._name, base_offset)
        if kept is not None:
            kept.adopt_undecided(producers)
            return kept
        is_loss = end_offset < base_offset and base_offset > max(self._recovery_point, self._cleaned_up_to)
        return Producers(self._name, base_offset) if is_loss else producers

    def _follows(self, segment: Segment, end_offset: int, *, is_first: bool) -> bool:
        if is_first or segment.base_offset == end_offset:
            return True
        return end_offset < segment.base_offset <= self._gaps_are_legal_below

    def _read(
        self, segment: Segment, expected: int, producers: Producers, counted: Segment | None
    ) -> tuple[int, LogDamage | None]:
        """Check a segment and rebuild its indexes; returns its end offset, and the damage where it had to be cut.

        With `counted`, the part before `expected` is done already.
        """
        opened = self._here.of(segment)
        if counted is None:
            opened.clear_indexes()
            counted = Segment(segment.base_offset)
        aborted = list(opened.aborted())
        walk = BatchWalk(opened.log, segment.size, start=counted.size)
        damage = None
        for batch in walk:
            header = batch.header
            if reason := self._fault(batch, expected, segment.base_offset):
                damage = LogDamage(batch.position, reason)
                break
            opened.add_index_entries(counted.appended((header,), self._index_interval_bytes))
            if header.leader_epoch > self._epochs.latest and header.last_offset >= self._log_start_offset:
                self._epochs.assign(header.leader_epoch, header.base_offset)
            completed = producers.replay(header, marker_in(header, batch.data))
            if completed is not None and completed.aborted:
                aborted.append(completed.as_aborted())
            expected = header.next_offset
        damage = damage or walk.damage
        if damage is not None:
            self._cut(opened, damage, expected)
        elif expected > max(self._recovery_point, segment.base_offset):
            opened.mark_unsynced()
        segment.adopt(counted)
        opened.set_aborted(aborted)
        return expected, damage

    def _fault(self, batch: BatchAt, expected: int, base_offset: int) -> str | None:
        header = batch.header
        if header.base_offset < expected or header.last_offset_delta < 0:
            return f"offsets {header.base_offset} to {header.last_offset} do not follow {expected}"
        if header.last_offset - base_offset > RELATIVE_OFFSET_MAX:
            return f"offset {header.last_offset} is too far from the segment's base"
        # A damaged marker could make aborted records visible.
        is_checked = header.last_offset >= self._recovery_point or header.is_control
        if is_checked and not crc_ok(batch.data, 0, header.size):
            return "wrong CRC"
        return None

    def _cut(self, opened: SegmentFiles, damage: LogDamage, end_offset: int) -> None:
        if end_offset < self._recovery_point:
            raise LogDamaged(
                f"{opened.log.path} is damaged at position {damage.position} ({damage.reason}), although everything up "
                f"to offset {self._recovery_point} had been synced. Restore the file, or remove the partition's "
                f"directory to start from another replica; `ottla log verify` shows what can still be read"
            )
        dropped = opened.segment.size - damage.position
        aside = None
        if find_batch(opened.log, damage.position, opened.segment.size, end_offset) is not None:
            aside = self._here.set_tail_aside(opened.segment, damage.position, self._now_ms)
        warn(
            "log.cut",
            path=opened.log.path,
            end_offset=end_offset,
            bytes=dropped,
            reason=damage.reason,
            set_aside=aside,
        )
        self._here.drop_summary()
        opened.cut(damage.position)

    def _drop(self, segments: list[Segment], index: int, reason: str) -> None:
        dropped = segments[index:]
        del segments[index:]
        if dropped:
            self._here.drop_summary()
            aside = self._here.set_aside(dropped, self._now_ms)
            warn(
                "log.segments_dropped",
                log=self._name,
                segments=[one.base_offset for one in dropped],
                reason=reason,
                set_aside=aside,
            )
