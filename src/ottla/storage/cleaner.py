"""Cleaning a compacted log in a thread, while the event loop goes on appending to it and reading from it.

1. flush, and checkpoint the recovery point: recovery above it takes gaps between segments for losses
2. read the dirty part and note the latest offset of every key, as far as the memory goes
3. group by group: write what stays into a `.cleaned` segment, sync it, rename it to `.swap`
4. back on the loop: put it in the place of the originals, unless they have changed meanwhile

Rule 1: a batch is copied only if its CRC is right: a copy with a new CRC would make damage look whole.
Rule 2: whatever goes wrong before step 4 changes nothing; the next open removes what was left.
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
from ottla.kernel import CorruptBatch, OffsetMap
from ottla.observe.trace import trace
from ottla.storage.batches import BatchAt, BatchWalk
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
    with directory.guard("clean"), _void_if_gone(log):
        flush = log.begin_flush()
        await disk.in_thread(flush.run)
        _check_unchanged(log, flush.generation)
        log.end_flush(flush)
        # Checkpoints are written on the loop alone, or an older state could overwrite a newer one.
        directory.recovery_points[log.key] = log.log.recovery_point
        directory.write_offsets(files.RECOVERY_POINTS, directory.recovery_points)
        cleaning = _Cleaning(log, cleanable, now_ms)
        await disk.in_thread(cleaning.map_keys)
        _check_unchanged(log, flush.generation)
        for group in group_segments(log.log, cleaning.end_offset):
            modified_ms = log.here.of(group[-1]).modified_ms()
            swapped = await disk.in_thread(partial(cleaning.rewrite, group, modified_ms))
            cleaning.install(group, swapped)
            await asyncio.sleep(cleaning.bytes_moved / log.log.config[LOG_CLEANER_IO_MAX_BYTES_PER_SECOND])
            cleaning.bytes_moved = 0
        directory.cleaner_offsets[log.key] = cleaning.end_offset
        directory.write_offsets(files.CLEANER_OFFSETS, directory.cleaner_offsets)
    done = Cleaned(cleaning.end_offset, cleaning.records_kept, cleaning.records_dropped)
    trace("log.cleaned", log=log.name, end_offset=done.end_offset, kept=done.records_kept, dropped=done.records_dropped)
    return done


def _check_in_use(log: PartitionLog) -> None:
    if log.here.closed:
        raise CleaningVoid(f"{log.name}: the log was closed while it was cleaned")


def _check_unchanged(log: PartitionLog, generation: int) -> None:
    _check_in_use(log)
    if log.generation != generation:
        raise CleaningVoid(f"{log.name}: the log was truncated while it was cleaned")


@contextmanager
def _void_if_gone(log: PartitionLog) -> Iterator[None]:
    """A file that is missing is no fault of the disk when the whole log was deleted meanwhile."""
    try:
        yield
    except FileNotFoundError:
        _check_in_use(log)
        raise


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
            for batch in self._batches(segment):
                header = batch.header
                aborted = tracker.may_go(header, marker_in(header, batch.data))
                is_data = not (header.is_control or aborted)
                if is_data and not kernel.put_keys(self._keys, batch.data, header, 0, first_dirty):
                    return
                if header.last_offset >= first_dirty:
                    self._keys.latest_offset = header.last_offset
            following = self._dirty[number + 1].base_offset if number + 1 < len(self._dirty) else None
            self._keys.latest_offset = (following or self._cleanable.end_offset) - 1

    def rewrite(self, group: list[Segment], modified_ms: int) -> SegmentFiles:
        """Write what stays of some neighbours into one new segment, durable and named `.swap`."""
        disk, path = self._log.here.disk, self._log.here.path
        interval = self._log.log.limits.index_interval_bytes
        segment = Segment(group[0].base_offset, created_ms=group[0].created_ms)
        cleaned = SegmentFiles(disk, path, segment, files.CLEANED)
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
        disk.sync_directory(path)
        if self._log.generation == self._generation:
            # From here on the next open would swap it in: not after a truncation, which it knows nothing of.
            cleaned.rename(files.SWAP)
            disk.sync_directory(path)
        return cleaned

    def install(self, group: list[Segment], swapped: SegmentFiles) -> None:
        """Put what was written in its place. A `.swap` that is void goes at once, or the next open would install it."""
        log = self._log
        try:
            _check_unchanged(log, self._generation)
            if not all(segment in log.log.segments for segment in group):
                raise CleaningVoid(f"{log.name}: segments were removed while they were cleaned")
        except CleaningVoid:
            swapped.remove()
            raise
        log.replace(group, swapped, self._now_ms)

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
            raise CleaningVoid(f"{self._log.name}: {path} was removed while the log was cleaned") from error
        try:
            walk = BatchWalk(file, segment.size, chunk=self._chunk)
            self.bytes_moved += segment.size
            for batch in walk:
                if not kernel.crc_ok(batch.data, 0, batch.header.size):
                    raise CorruptBatch(f"{path}: the batch at position {batch.position} has the wrong CRC")
                yield batch
            if walk.damage is not None:
                raise CorruptBatch(f"{path} is damaged at position {walk.damage.position}: {walk.damage.reason}")
        finally:
            file.close()
