"""Clean a compacted log in a thread, while the event loop appends to it and reads from it.

1. Flush, and checkpoint the recovery point: above it, recovery treats a gap between segments as a loss.
2. Read the dirty part and record the latest offset of every key, until the offset map is full.
3. For each group of segments: write the records to keep into a `.cleaned` segment and sync it.
4. On the loop: rename it to `.swap`; when that is durable, replace the originals with it.

Rule 1: a batch is copied only if its CRC is correct. A copy with a new CRC would hide the damage.
Rule 2: the log can change whenever the cleaner awaits. A group that retention removed is skipped. A truncation, or
        closing the log, discards the whole cleaning. So the log is checked after every await, and a missing file is
        never reported as a disk failure.
Rule 3: the thread writes `.cleaned` files only, which opening a log ignores. By then the path may belong to another
        log.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from ottla import kernel
from ottla.config import (
    DELETE_RETENTION_MS,
    LOG_CLEANER_DEDUPE_BUFFER_SIZE,
    LOG_CLEANER_IO_BUFFER_LOAD_FACTOR,
    LOG_CLEANER_IO_BUFFER_SIZE,
    LOG_CLEANER_IO_MAX_BYTES_PER_SECOND,
    LOG_CLEANER_THREADS,
)
from ottla.core.log import files
from ottla.core.log.cleaning import Cleanable, TransactionTracker, group_segments, judge
from ottla.core.log.segment import Segment
from ottla.kernel import OffsetMap
from ottla.observe.trace import trace
from ottla.storage.batches import BatchAt, BatchWalk, DamagedAt
from ottla.storage.index_file import OutOfUse
from ottla.storage.partition_log import PartitionLog
from ottla.storage.recovery import marker_in
from ottla.storage.segment_files import SegmentFiles


class CleaningVoid(Exception):
    """The log was truncated or closed during cleaning; the work so far is discarded."""


class Cleaned(NamedTuple):
    """The result of one cleaning."""

    end_offset: int
    """Where the next cleaning begins."""
    records_kept: int
    records_dropped: int


async def clean(log: PartitionLog, cleanable: Cleanable, now_ms: int) -> Cleaned:
    """Clean the part that `cleanable` names, and checkpoint the offset where cleaning ended.

    Raises `CleaningVoid` if the log was truncated or deleted meanwhile, `CorruptBatch` if a batch is damaged.
    """
    directory, disk = log.directory, log.directory.disk
    generation = log.generation
    with directory.guard("clean"), _void_if_gone(log):
        await log.flush_in_thread()
        _check_unchanged(log, generation)
        directory.keep_recovery_point(log.key, log.state.recovery_point)
        cleaning = _Cleaning(log, cleanable, now_ms)
        await disk.in_thread(cleaning.map_keys)
        _check_unchanged(log, generation)
        for group in group_segments(log.state, cleaning.end_offset):
            await cleaning.replace(group)
            await asyncio.sleep(cleaning.bytes_moved / log.state.config[LOG_CLEANER_IO_MAX_BYTES_PER_SECOND])
            cleaning.bytes_moved = 0
            _check_unchanged(log, generation)
        directory.keep_cleaned_up_to(log.key, cleaning.end_offset)
    done = Cleaned(cleaning.end_offset, cleaning.records_kept, cleaning.records_dropped)
    trace("log.cleaned", log=log.name, end_offset=done.end_offset, kept=done.records_kept, dropped=done.records_dropped)
    return done


def _check_unchanged(log: PartitionLog, generation: int) -> None:
    if log.here.closed:
        raise CleaningVoid(f"{log.name}: the log was closed while it was cleaned")
    if log.generation != generation:
        raise CleaningVoid(f"{log.name}: the log was truncated while it was cleaned")


@contextmanager
def _void_if_gone(log: PartitionLog) -> Iterator[None]:
    """Turn a missing file into `CleaningVoid` if the log was deleted meanwhile: the disk did not fail."""
    try:
        yield
    except (FileNotFoundError, OutOfUse) as error:
        if log.here.closed:
            raise CleaningVoid(f"{log.name}: the log was closed while it was cleaned") from error
        raise


class _SegmentGone(Exception):
    """Retention removed a segment before the cleaner read it."""


class _Cleaning:
    """One run of the cleaner over one log."""

    def __init__(self, log: PartitionLog, cleanable: Cleanable, now_ms: int) -> None:
        config = log.state.config
        self._log = log
        self._generation = log.generation
        self._cleanable = cleanable
        self._now_ms = now_ms
        self._last_records = log.state.producers.last_records()
        segments = log.state.segments
        self._dirty = [
            segment
            for segment in segments[log.state.segment_at(cleanable.first_dirty_offset) :]
            if segment.base_offset < cleanable.end_offset
        ]
        self._aborted = log.aborted_transactions(segments[0].base_offset, cleanable.end_offset)
        self._tracker = TransactionTracker(self._aborted)
        self._keys = OffsetMap(
            config[LOG_CLEANER_DEDUPE_BUFFER_SIZE] // config[LOG_CLEANER_THREADS],
            config[LOG_CLEANER_IO_BUFFER_LOAD_FACTOR],
        )
        self._chunk = max(config[LOG_CLEANER_IO_BUFFER_SIZE] // config[LOG_CLEANER_THREADS] // 2, 1)
        self.bytes_moved = 0
        """Bytes read and written since the last pause, for `log.cleaner.io.max.bytes.per.second`."""
        self.records_kept = 0
        self.records_dropped = 0

    @property
    def end_offset(self) -> int:
        """The end of the offsets whose keys are in the offset map."""
        return self._keys.latest_offset + 1

    def map_keys(self) -> None:
        """Record the latest offset of every key in the dirty segments, until the map is full."""
        first_dirty = self._cleanable.first_dirty_offset
        tracker = TransactionTracker(self._aborted)
        for number, segment in enumerate(self._dirty):
            try:
                for batch in self._batches(segment):
                    header = batch.header
                    aborted = tracker.may_go(header, marker_in(header, batch.data))
                    is_data = not (header.is_control or aborted)
                    if is_data and not kernel.put_keys(self._keys, batch.data, header, 0, first_dirty):
                        return
                    if header.last_offset >= first_dirty:
                        self._keys.latest_offset = header.last_offset
            except _SegmentGone:
                # All segments before it are gone too, and with them the records that its keys would have superseded.
                pass
            following = self._dirty[number + 1].base_offset if number + 1 < len(self._dirty) else None
            self._keys.latest_offset = (following or self._cleanable.end_offset) - 1

    async def replace(self, group: list[Segment]) -> None:
        """Rewrite adjacent segments into one and replace them with it, unless retention removes them meanwhile."""
        here, disk = self._log.here, self._log.here.disk
        if not self._are_there(group):
            return
        modified_ms = here.of(group[-1]).modified_ms()
        segment = Segment(group[0].base_offset, created_ms=group[0].created_ms)
        cleaned = SegmentFiles(disk, here.path, segment, files.CLEANED)
        try:
            await disk.in_thread(partial(self._rewrite, group, cleaned, modified_ms))
            if self._are_there(group):
                # From here on the next open would swap it in.
                cleaned.rename(files.SWAP)
                await disk.in_thread(partial(disk.sync_directory, here.path))
                if self._are_there(group):
                    self._log.replace(group, cleaned, self._now_ms)
                    return
        except _SegmentGone:
            self._are_there(group)
        except Exception:
            self._discard(cleaned)
            raise
        self._discard(cleaned)

    def _discard(self, cleaned: SegmentFiles) -> None:
        if not self._log.here.closed and self._log.directory.failure is None:
            cleaned.remove()

    def _are_there(self, group: list[Segment]) -> bool:
        """Whether a group can be replaced; False if all of it is gone. Raises CleaningVoid if only part of it is left:
        the removed part was not read, and a marker could be dropped before the records it ends."""
        _check_unchanged(self._log, self._generation)
        there = sum(segment in self._log.state.segments for segment in group)
        if 0 < there < len(group):
            raise CleaningVoid(f"{self._log.name}: segments were removed while they were cleaned")
        if not there:
            self._tracker.take_still_aborted()
        return there > 0

    def _rewrite(self, group: list[Segment], cleaned: SegmentFiles, modified_ms: int) -> None:
        """Write the records to keep of adjacent segments into one new segment and sync it. Runs in a thread."""
        disk, segment = self._log.here.disk, cleaned.segment
        interval = self._log.state.limits.index_interval_bytes
        cleaned.create()
        for source in group:
            for batch in self._batches(source):
                kept = self._kept(batch)
                if kept is not None:
                    cleaned.append([kept])
                    self.bytes_moved += len(kept)
                    cleaned.add_index_entries(segment.appended((kernel.read_header(kept),), interval))
        cleaned.set_aborted(self._tracker.take_still_aborted())
        cleaned.finish_indexes()
        cleaned.sync(indexes=True)
        disk.set_modified_ms(cleaned.path(files.LOG), modified_ms)
        disk.sync_directory(self._log.here.path)

    def _kept(self, batch: BatchAt) -> kernel.Buffer | None:
        header = batch.header
        verdict = judge(
            header,
            may_go=self._tracker.may_go(header, marker_in(header, batch.data)),
            last_records=self._last_records,
            end_offset=self._cleanable.end_offset,
            now_ms=self._now_ms,
        )
        filtered = kernel.filter_batch(
            batch.data,
            0,
            header,
            keep=self._keys,
            now_ms=self._now_ms,
            delete_retention_ms=self._log.state.config[DELETE_RETENTION_MS],
            discard=verdict.discard,
            retain_empty=verdict.retain_empty,
            marks_empty_txn=verdict.marks_empty_txn,
        )
        self.records_kept += filtered.records_kept
        self.records_dropped += filtered.records_dropped
        return filtered.batch

    def _batches(self, segment: Segment) -> Iterator[BatchAt]:
        """The batches of a segment. Opens the file separately, because the log may close its own meanwhile."""
        path = SegmentFiles(self._log.here.disk, self._log.here.path, segment).path(files.LOG)
        try:
            file = self._log.here.disk.open(path, writable=False)
        except FileNotFoundError as error:
            raise _SegmentGone(path) from error
        try:
            walk = BatchWalk(file, segment.size, chunk=self._chunk)
            self.bytes_moved += segment.size
            for batch in walk:
                if not kernel.crc_ok(batch.data, 0, batch.header.size):
                    raise DamagedAt(file, batch.position, "the batch has the wrong CRC")
                yield batch
            if walk.damage is not None:
                raise DamagedAt(file, *walk.damage)
        finally:
            file.close()
