"""The files of one segment: its log and its three indexes.

Rule 1: files are opened when first needed, so that a log of many segments opens quickly.
Rule 2: an index entry is a hint: it is used only if the batch it points to confirms it. A wrong entry raises
        `BadIndex`; the caller has the indexes rebuilt (`mend`) and repeats the look-up.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ottla.config import INDEX_INTERVAL_BYTES, Config
from ottla.core.log import files
from ottla.core.log.indexes import (
    OFFSET_ENTRY,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY,
    TXN_ENTRY_SIZE,
    AbortedTxn,
    BadIndex,
    decode_aborted,
)
from ottla.core.log.segment import IndexEntries, Segment
from ottla.io.ports import Buffer, Disk, File
from ottla.kernel import HEADER_SIZE, BatchHeader, CorruptBatch, crc_ok, find_time, read_header
from ottla.storage.atomic import read_whole
from ottla.storage.batches import DamagedAt, PassingHeaders, headers
from ottla.storage.index_file import IndexFile, OutOfUse
from ottla.storage.syncing import Changes, Sync, together

_UNKNOWN = -1
_BETWEEN_ENTRIES = 4096


class BatchFound(NamedTuple):
    """A batch's position in the segment and its header."""

    position: int
    header: BatchHeader


class SegmentEnd(NamedTuple):
    """The end of a segment, according to the header of its last batch."""

    offset: int
    """The offset after the last record."""
    damage: DamagedAt | None = None
    """Set if the last batch has a wrong CRC, or an earlier one is unreadable."""


class TimeFound(NamedTuple):
    """The record that a look-up by time found."""

    offset: int
    timestamp: int
    leader_epoch: int


class SegmentFiles:
    """The open files of one segment."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segment: Segment,
        suffix: str = "",
        before_rewriting: Callable[[], None] = lambda: None,
        before_aborted: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_rewriting` is called before an index is rewritten, when its old contents stop being reliable;
        `before_aborted` before the transaction index is opened for writing."""
        self._before_rewriting = before_rewriting
        self._before_aborted = before_aborted
        self._disk = disk
        self._directory = directory
        self.segment = segment
        self.suffix = suffix
        self._offsets = IndexFile(disk, self.path(files.OFFSET_INDEX), OFFSET_ENTRY, segment.offset_entries)
        self._times = IndexFile(disk, self.path(files.TIME_INDEX), TIME_ENTRY, segment.time_entries)
        self._log: File | None = None
        self._txns: File | None = None
        self._aborted: list[AbortedTxn] | None = None
        self.aborted_confirmed = False
        """Whether the transaction index was checked against the log. Entries written by this process need no check."""
        self._in_use = True
        self._synced_size = segment.size
        """The log's size at its last sync. A log found on disk counts as synced until `mark_unsynced`."""
        self._txn_changes = Changes()

    def path(self, kind: str) -> str:
        return f"{self._directory}/{files.file_name(self.segment.base_offset, kind, self.suffix)}"

    @property
    def is_settled(self) -> bool:
        """Whether everything is written and synced, so that the files can be closed and reopened without loss."""
        return (
            self._synced_size == self.segment.size
            and self._offsets.is_synced
            and self._times.is_synced
            and not self._txn_changes.are_unsynced
        )

    @property
    def log(self) -> File:
        if self._log is None:
            if not self._in_use:
                raise OutOfUse(self.path(files.LOG))
            self._log = self._disk.open(self.path(files.LOG))
        return self._log

    # Writing.

    def create(self) -> None:
        """Create the log, empty; a leftover file of that name is truncated. The indexes are created with the first
        batch."""
        self._log = self._disk.open(self.path(files.LOG), create=True)
        self._log.truncate(0)
        self.clear_indexes()

    def append(self, batches: Sequence[Buffer]) -> None:
        """Write at the end. The caller updates the segment's statistics when the log state has applied the batches."""
        if self.segment.size == 0:
            # Kafka treats a segment without index files as broken, unless its log is empty.
            self._offsets.make()
            self._times.make()
        (self._log or self.log).write(self.segment.size, batches)

    def add_index_entries(self, entries: Sequence[IndexEntries]) -> None:
        for offset, time in entries:
            self._offsets.append(offset)
            if time is not None:
                self._times.append(time)

    def add_aborted(self, txn: AbortedTxn) -> None:
        aborted = self.aborted()
        file = self._txn_file()
        self._txn_changes.note()
        file.write(len(aborted) * TXN_ENTRY_SIZE, [txn.encode()])
        aborted.append(txn)

    def prepare_to_abort(self) -> None:
        """Open the transaction index, so that writing to it cannot fail for lack of descriptors."""
        self._txn_file()

    def finish_indexes(self) -> None:
        """End the time index with the segment's largest timestamp, and write both indexes to their files."""
        self.load_times()
        if (entry := self.segment.time_entry()) is not None:
            self._times.append(entry)
        self._offsets.write_out()
        self._times.write_out()

    def begin_sync(self, *, indexes: bool) -> Sync | None:
        """A sync of the written bytes; None if they are durable. A file that goes out of use before the sync runs needs
        none."""
        syncs: list[Sync] = []
        if self._synced_size != self.segment.size:
            syncs.append(Sync(self.log.sync, partial(self._settle_log, self.segment.size)))
        if indexes:
            syncs += filter(None, (self._offsets.begin_sync(), self._times.begin_sync()))
            if self._txn_changes.are_unsynced:
                changes = self._txn_changes
                syncs.append(Sync(self._txn_file().sync, partial(changes.settle, changes.made)))
        if not syncs:
            return None
        everything = together(syncs)

        def run() -> None:
            try:
                everything.run()
            except OSError:
                if self._in_use:
                    raise

        return Sync(run, everything.settle)

    def _settle_log(self, size: int) -> None:
        self._synced_size = size

    def sync(self, *, indexes: bool) -> None:
        """Sync in this thread."""
        sync = self.begin_sync(indexes=indexes)
        if sync is not None:
            sync.run()
            sync.settle()

    def mark_unsynced(self) -> None:
        """The log was written by a process that died, so it is unknown what is durable."""
        self._synced_size = _UNKNOWN

    def rename(self, suffix: str) -> None:
        """Give the files another suffix; they are reopened when needed."""
        self.close()
        self._in_use = True
        before = {kind: self.path(kind) for kind in files.SEGMENT_KINDS}
        self.suffix = suffix
        for kind, path in before.items():
            if self._disk.exists(path):
                self._disk.rename(path, self.path(kind))

    def remove(self) -> None:
        self.close()
        for kind in files.SEGMENT_KINDS:
            if self._disk.exists(self.path(kind)):
                self._disk.remove(self.path(kind))

    def release(self) -> None:
        """Close the indexes until they are needed again, and the log too if it has nothing to sync. An unsynced log
        stays open, because the kernel forgets a failed write once no process has the file open."""
        self._offsets.release()
        self._times.release()
        if self._synced_size == self.segment.size:
            self._log = None

    def retire(self) -> None:
        """Take the files out of use without closing them: readers may hold the log, and dropping the last reference
        closes it. Unsynced bytes need no sync any more."""
        self._in_use = False

    def close(self) -> None:
        """Close the files and take them out of use."""
        self._in_use = False
        opened, self._log, self._txns = (self._log, self._txns), None, None
        for file in opened:
            if file is not None:
                file.close()
        self._offsets.close()
        self._times.close()

    # Looking up.

    def locate(self, offset: int) -> BatchFound | None:
        """The first batch whose last offset is at least `offset`; None if the segment ends before. Raises
        `CorruptBatch` if the offset may be in a damaged batch."""
        hint = self._offsets.floor(offset - self.segment.base_offset)
        try:
            return next((found for found in self._follow(hint) if found.header.last_offset >= offset), None)
        except DamagedAt:
            return self._locate_past_damage(hint, offset)

    def _locate_past_damage(self, hint: tuple[int, ...] | None, offset: int) -> BatchFound | None:
        batches = PassingHeaders(self.log, hint[1] if hint else 0, self.segment.size)
        for position, header in batches:
            if header.last_offset >= offset:
                if batches.damage is not None and header.base_offset > offset:
                    raise batches.damage
                return BatchFound(position, header)
        return None

    def end_offset_before(self, position: int) -> int:
        """The offset after the last batch that begins before `position`."""
        end_offset = self.segment.base_offset
        for found in self._follow(self._offsets.floor(position - 1, column=1)):
            if found.position >= position:
                break
            end_offset = found.header.next_offset
        return end_offset

    def last_begun_before(self, end: int) -> tuple[int | None, BatchHeader | None]:
        """The position and header of the last batch that begins before `end`, using only cached pages of the log. No
        position if they are not cached; no header if the log or its index is damaged, which the caller finds out by
        following the index.

        If batches are smaller than the index interval, only those up to the next index entry are read, so an earlier
        batch may be returned.
        """
        hint = self._offsets.floor(end - 1, column=1)
        begin = position = hint[1] if hint else 0
        data = self.log.read_warm(begin, HEADER_SIZE)
        if data is None:
            return None, None
        try:
            header = read_header(data)
            if hint and header.last_offset != self.segment.base_offset + hint[0]:
                return begin, None
            if begin + header.size < end:
                data = self.log.read_warm(begin, min(_BETWEEN_ENTRIES, self.segment.size - begin)) or b""
                while (following := position + header.size) < end and following - begin + HEADER_SIZE <= len(data):
                    position, header = following, read_header(data, following - begin)
        except CorruptBatch:
            return position, None
        return position, header

    def end(self) -> SegmentEnd:
        """The end of the segment, found from the last index entry on."""
        hint = self._offsets.last()
        if hint is not None:
            next(self._follow(hint))
        batches = PassingHeaders(self.log, hint[1] if hint else 0, self.segment.size)
        last: BatchFound | None = None
        for position, header in batches:
            last = BatchFound(position, header)
        if last is None:
            return SegmentEnd(self.segment.base_offset)
        if not crc_ok(self.log.read(last.position, last.header.size), 0, last.header.size):
            return SegmentEnd(
                last.header.next_offset, DamagedAt(self.log, last.position, "the last batch has the wrong CRC")
            )
        return SegmentEnd(last.header.next_offset, batches.damage)

    def find_time(self, timestamp: int, from_offset: int) -> TimeFound | None:
        """The first record at or after `from_offset` whose timestamp is at least `timestamp`."""
        # Start before the timestamp: a wrong entry with exactly this timestamp could name a later batch.
        hint = self._times.floor(timestamp - 1)
        start = self.locate(max(self._confirmed_time(hint), from_offset) if hint else from_offset)
        if start is None:
            return None
        for position, header in headers(self.log, start.position, self.segment.size):
            if header.max_timestamp >= timestamp:
                data = self.log.read(position, header.size)
                if not crc_ok(data, 0, header.size):
                    raise DamagedAt(self.log, position, "the batch has the wrong CRC")
                found = find_time(data, 0, timestamp, from_offset)
                if found is not None:
                    return TimeFound(*found, header.leader_epoch)
        return None

    def load_times(self) -> None:
        """Read the largest timestamp of a segment opened from disk from the end of its time index."""
        segment = self.segment
        if segment.times_known:
            return
        if (last := self._times.last()) is not None:
            segment.offset_of_max_timestamp = self._confirmed_time(last)
            segment.max_timestamp = segment.last_timed = last[0]
        segment.times_known = True

    def load_first_timestamp(self) -> None:
        """Read the timestamp from which time-based rolling counts."""
        if self.segment.first_timestamp is None and self.segment.size:
            _, header = next(headers(self.log, 0, self.segment.size))
            self.segment.first_timestamp = header.max_timestamp

    def modified_ms(self) -> int:
        return self._disk.modified_ms(self.path(files.LOG))

    def aborted(self) -> list[AbortedTxn]:
        if self._aborted is None:
            self._aborted = decode_aborted(read_whole(self._disk, self.path(files.TXN_INDEX)) or b"")
        return self._aborted

    def _follow(self, hint: tuple[int, ...] | None) -> Iterator[BatchFound]:
        """The batches from an index entry on, after the first has confirmed the entry."""
        batches = headers(self.log, hint[1] if hint else 0, self.segment.size)
        if hint:
            yield self._confirmed(hint, batches)
        for position, header in batches:
            yield BatchFound(position, header)

    def _confirmed(self, hint: tuple[int, ...], batches: Iterator[tuple[int, BatchHeader]]) -> BatchFound:
        """The first of `batches`, if it matches the entry; else raises BadIndex."""
        relative, position = hint
        offset = self.segment.base_offset + relative
        try:
            first = BatchFound(*next(batches)) if 0 <= position < self.segment.size else None
        except CorruptBatch:
            # The entry points into the middle of a batch. If the log itself is damaged, rebuilding finds that.
            first = None
        if first is None or first.header.last_offset != offset:
            raise BadIndex(f"{self.path(files.OFFSET_INDEX)}: no batch at position {position} ends at offset {offset}")
        return first

    def _confirmed_time(self, hint: tuple[int, ...]) -> int:
        """The offset in a time index entry, if the batch there has the entry's timestamp."""
        timestamp, relative = hint
        offset = self.segment.base_offset + relative
        found = self.locate(offset)
        if found is None or found.header.max_timestamp != timestamp or found.header.base_offset > offset:
            raise BadIndex(f"{self.path(files.TIME_INDEX)}: timestamp {timestamp} should be at offset {offset}")
        return offset

    # Truncating and rebuilding.

    def truncate(self, first: BatchFound, config: Config) -> None:
        """Remove the batch `first` and all later ones permanently, with their index entries."""
        aborted = [txn for txn in self.aborted() if txn.last_offset < first.header.base_offset]
        self.cut(first.position)
        self.segment.size = first.position
        self.reindex(config)
        self.set_aborted(aborted)

    def cut(self, position: int) -> None:
        """Truncate the log durably: after a power loss the removed bytes would otherwise follow new ones."""
        self.log.truncate(position)
        self.log.sync()
        self._synced_size = position

    def reindex(self, config: Config) -> None:
        """Rebuild the offset and time index from the log; the next sync makes them durable."""
        counted, offsets, times = self._counted_anew(config)
        self._before_rewriting()
        self._offsets.clear()
        self._times.clear()
        self._offsets.add(offsets)
        self._times.add(times)
        self.segment.adopt(counted)

    def mend(self, config: Config) -> None:
        """Rebuild the offset and time index durably: after a clean shutdown they are trusted.

        Damaged batches are skipped. If no whole batch follows one, the indexes stay as they are.
        """
        counted, offsets, times = self._counted_anew(config)
        if (entry := counted.time_entry()) is not None:
            times += TIME_ENTRY.pack(*entry)
        self._offsets.replace(bytes(offsets))
        self._times.replace(bytes(times))
        self.segment.adopt(counted)

    def _counted_anew(self, config: Config) -> tuple[Segment, bytearray, bytearray]:
        """The statistics of the segment and the packed entries of both indexes, computed from the log."""
        base_offset, interval = self.segment.base_offset, config[INDEX_INTERVAL_BYTES]
        counted, offsets, times = Segment(base_offset), bytearray(), bytearray()
        for position, header in PassingHeaders(self.log, 0, self.segment.size):
            counted.size = position  # Past the damage.
            if header.last_offset - base_offset > RELATIVE_OFFSET_MAX:
                raise DamagedAt(self.log, position, f"offset {header.last_offset} is too far from the segment's base")
            for entry in counted.appended((header,), interval):
                offsets += OFFSET_ENTRY.pack(*entry.offset)
                if entry.time is not None:
                    times += TIME_ENTRY.pack(*entry.time)
        counted.size = self.segment.size
        return counted, offsets, times

    def keep_before(self, offset: int) -> Segment | None:
        """Keep the index entries before `offset`; returns the statistics up to there.

        Returns None, with nothing changed, if the log contradicts them; then they are rebuilt from the beginning.
        """
        try:
            found = self.locate(offset)
            if (found is None and self.end() != SegmentEnd(offset)) or (found and found.header.base_offset < offset):
                return None
            position = self.segment.size if found is None else found.position
            relative = offset - self.segment.base_offset
            offsets = self._offsets.count_at_most(0, relative - 1)
            times = self._times.count_at_most(1, relative - 1)
            last_indexed = self._offsets.at(offsets - 1)[1] if offsets else 0
            last_time = self._times.at(times - 1) if times else None
            counted = Segment(self.segment.base_offset, size=position, offset_entries=offsets, time_entries=times)
            if last_time is not None:
                counted.offset_of_max_timestamp = self._confirmed_time(last_time)
                counted.max_timestamp = counted.last_timed = last_time[0]
            aborted = [txn for txn in self.aborted() if txn.last_offset < offset]
            with suppress(CorruptBatch):
                self.load_first_timestamp()
        except (BadIndex, CorruptBatch):
            return None
        counted.resume(self.segment.first_timestamp, position - last_indexed)
        self._offsets.keep(offsets)
        self._times.keep(times)
        if len(aborted) < len(self.aborted()):
            self.set_aborted(aborted)
        return counted

    def set_aborted(self, aborted: list[AbortedTxn]) -> None:
        """Replace the transaction index; a common prefix of old and new entries is not rewritten."""
        path = self.path(files.TXN_INDEX)
        kept = 0
        while self._aborted and kept < len(aborted) and self._aborted[kept : kept + 1] == aborted[kept : kept + 1]:
            kept += 1
        if aborted or self._disk.exists(path):
            if not kept:
                self._before_rewriting()
            file = self._txn_file()
            self._txn_changes.note()
            file.truncate(kept * TXN_ENTRY_SIZE)
            file.write(kept * TXN_ENTRY_SIZE, [b"".join(txn.encode() for txn in aborted[kept:])])
        self._aborted = aborted
        self.aborted_confirmed = True

    def clear_indexes(self) -> None:
        self._before_rewriting()
        self._offsets.clear()
        self._times.clear()
        self.set_aborted([])

    def _txn_file(self) -> File:
        if self._txns is None:
            if not self._in_use:
                raise OutOfUse(self.path(files.TXN_INDEX))
            self._before_aborted()
            self._txns = self._disk.open(self.path(files.TXN_INDEX), create=True)
        return self._txns
