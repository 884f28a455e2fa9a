"""Cleaning a compacted log in a thread, while the event loop goes on appending to it and reading from it.

1. flush, and checkpoint the recovery point: recovery above it takes gaps between segments for losses
2. read the dirty part and note the latest offset of every key, as far as the memory goes
3. group by group: write what stays into a `.cleaned` segment and sync it
4. back on the loop: rename it to `.swap`; when that is durable, put it in the place of the originals

Rule 1: a batch is copied only if its CRC is right: a copy with a new CRC would make damage look whole.
Rule 2: while a thread works or the cleaner rests, anything may happen to the log. A group that retention takes is left
        out. A truncation, or the end of the log, makes all the work void. So after every wait the log is asked what is
        still there, and a file that is gone is never taken for a failure of the disk.
Rule 3: the thread only writes `.cleaned` files, which mean nothing to anybody: when it does, its path may be that of
        another log already.
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
    """The log was changed under the cleaner's hands; the work so far is thrown away."""


class Cleaned(NamedTuple):
    end_offset: int
    """Where the next cleaning begins."""
    records_kept: int
    records_dropped: int


async def clean(log: PartitionLog, cleanable: Cleanable, now_ms: int) -> Cleaned:
    """Clean what `cleanable` says, and note in the directory's checkpoint where that ended.

    Raises `CleaningVoid` when the log was truncated or deleted meanwhile, `CorruptBatch` when a batch is not to be
    trusted.
    """
    directory, disk = log.directory, log.directory.disk
    generation = log.generation
    with directory.guard("clean"), _void_if_gone(log):
        await log.flush_in_thread()
        _check_unchanged(log, generation)
        directory.keep_recovery_point(log.key, log.log.recovery_point)
        cleaning = _Cleaning(log, cleanable, now_ms)
        await disk.in_thread(cleaning.map_keys)
        _check_unchanged(log, generation)
        for group in group_segments(log.log, cleaning.end_offset):
            await cleaning.replace(group)
            await asyncio.sleep(cleaning.bytes_moved / log.log.config[LOG_CLEANER_IO_MAX_BYTES_PER_SECOND])
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
    """A file that is missing is no fault of the disk when the whole log was deleted meanwhile."""
    try:
        yield
    except (FileNotFoundError, OutOfUse) as error:
        if log.here.closed:
            raise CleaningVoid(f"{log.name}: the log was closed while it was cleaned") from error
        raise


class _SegmentGone(Exception):
    """Retention took a segment that was about to be read."""


class _Cleaning:
    def __init__(self, log: PartitionLog, cleanable: Cleanable, now_ms: int) -> None:
        config = log.log.config
        self._log = log
        self._generation = log.generation
        self._cleanable = cleanable
        self._now_ms = now_ms
        self._last_records = log.log.producers.last_records()
        segments = log.log.segments
        self._dirty = [
            segment
            for segment in segments[log.log.segment_at(cleanable.first_dirty_offset) :]
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
        """Read and written since the last rest: cleaning keeps to `log.cleaner.io.max.bytes.per.second`."""
        self.records_kept = 0
        self.records_dropped = 0

    @property
    def end_offset(self) -> int:
        """Everything before it is known to the map of keys."""
        return self._keys.latest_offset + 1

    def map_keys(self) -> None:
        """Note the latest offset of every key in the dirty segments, until the map is full."""
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
                pass  # And so are all before it. What their records would have superseded is gone with them.
            following = self._dirty[number + 1].base_offset if number + 1 < len(self._dirty) else None
            self._keys.latest_offset = (following or self._cleanable.end_offset) - 1

    async def replace(self, group: list[Segment]) -> None:
        """Write some neighbours anew and put that in their place, unless retention takes them meanwhile."""
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
        """Whether a group can be replaced, or is gone altogether. Where only some of it is left, the work is void: what
        these hold was not seen, and the markers of their records might go before them."""
        _check_unchanged(self._log, self._generation)
        there = sum(segment in self._log.log.segments for segment in group)
        if 0 < there < len(group):
            raise CleaningVoid(f"{self._log.name}: segments were removed while they were cleaned")
        if not there:
            self._tracker.take_still_aborted()
        return there > 0

    def _rewrite(self, group: list[Segment], cleaned: SegmentFiles, modified_ms: int) -> None:
        """Write what stays of some neighbours into one new segment, durably. In a thread."""
        disk, segment = self._log.here.disk, cleaned.segment
        interval = self._log.log.limits.index_interval_bytes
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
            delete_retention_ms=self._log.log.config[DELETE_RETENTION_MS],
            discard=verdict.discard,
            retain_empty=verdict.retain_empty,
            marks_empty_txn=verdict.marks_empty_txn,
        )
        self.records_kept += filtered.records_kept
        self.records_dropped += filtered.records_dropped
        return filtered.batch

    def _batches(self, segment: Segment) -> Iterator[BatchAt]:
        """The batches of a segment by a file of our own: the log may close its while we read."""
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
