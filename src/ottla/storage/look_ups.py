"""Queries to the indexes of a log's segments.

Rule 1: an index that proves wrong is rebuilt from the log, durably, and queried again. So is a transaction index that
        its checksum or the log contradicts.
Rule 2: a look-up by time bisects to the first segment to read: the running maximum of the closed segments' timestamps
        never falls. For segments in the summary of the last clean close it is read from that file. For later ones it is
        gathered at the first look-up, extended as segments close, and gathered again after segments were removed.
Rule 3: the summary gives upper bounds only. If a bound proves too high, because the newest records are gone, all
        segments are gathered instead.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import TypeVar

from ottla.config import CLEANUP_POLICY
from ottla.core.log.indexes import AbortedTxn, BadIndex, overlapping
from ottla.core.log.segment import NO_TIMESTAMP, Segment
from ottla.core.log.state import LogState
from ottla.core.log.summary import UNKNOWN, BadSummary, SummaryEntry, encode_summary, txn_checksum
from ottla.kernel import ControlType, CorruptBatch
from ottla.observe.trace import trace, warn
from ottla.storage.partition_files import PartitionFiles
from ottla.storage.recovery import aborted_in, marker_in
from ottla.storage.segment_files import BatchFound, SegmentFiles, TimeFound
from ottla.storage.summary_file import SummaryFile

T = TypeVar("T")
_WORTH_A_THREAD = 50
"""From this many segments on, their timestamps are gathered in a thread."""
_NOTHING_KNOWN = -1


class LookUps:
    """The look-ups of one log."""

    def __init__(self, log: LogState, here: PartitionFiles) -> None:
        self._log = log
        self._here = here
        self._summary: SummaryFile | None = None
        self._bounded = True
        """Whether the summary is still used for time bounds (Rule 3)."""
        self._running_max: list[int] | None = None
        """Per closed segment outside the summary: the largest timestamp from the first of them up to its end. None if
        it must be gathered again."""
        self._learning = asyncio.Lock()
        self._txn_checksums: dict[int, tuple[int, int]] = {}
        """Checksums of the transaction indexes confirmed here, by base offset: the segment's size and the checksum."""
        self._aborting: list[int] = []
        """`PartitionFiles.aborting`, sorted, plus the segments known from checksums."""
        self._aborting_known = _NOTHING_KNOWN
        """The size of `PartitionFiles.aborting` when `_aborting` was computed."""

    def locate(self, segment: Segment, offset: int) -> BatchFound | None:
        """The first batch of a segment whose last offset is at least `offset`."""
        return self._ask(segment, lambda files: files.locate(offset))

    def end_offset_before(self, segment: Segment, position: int) -> int:
        """The offset after the last batch of a segment that begins before `position`."""
        return self._ask(segment, lambda files: files.end_offset_before(position))

    def _ask(self, segment: Segment, look: Callable[[SegmentFiles], T]) -> T:
        files = self._here.of(segment)
        try:
            return look(files)
        except BadIndex as error:
            warn("index.rebuilt", log=self._log.name, base_offset=segment.base_offset, reason=error)
            files.mend(self._log.config)
        try:
            return look(files)
        except BadIndex as error:
            # The index was just rebuilt from the log, so the log contradicts itself.
            raise CorruptBatch(f"{files.log.path} is damaged: {error}") from error

    # By time.

    def find_time(self, timestamp: int) -> TimeFound | None:
        """The first record whose timestamp is at least `timestamp`."""
        segments = self._log.segments
        for index in range(self._first_reaching(timestamp), len(segments)):
            if self.max_timestamp(segments[index]) < timestamp:
                continue
            found = self._ask(segments[index], lambda files: files.find_time(timestamp, self._log.log_start_offset))
            if found is not None:
                return found
        return None

    def find_max_timestamp(self) -> TimeFound | None:
        """The first record that has the largest timestamp of all."""
        bound = self._ask_summary(lambda summary: summary.closed_max_timestamp) if self._bounded else None
        gathered = self._gathered(self._first_unbounded())[-1:]
        largest = max(NO_TIMESTAMP if bound is None else bound, *gathered, self.max_timestamp(self._log.active))
        found = self.find_time(largest) if largest >= 0 else None
        if found is None and largest >= 0:
            # The record with that timestamp is gone.
            largest = max(self.max_timestamp(segment) for segment in self._log.segments)
            found = self.find_time(largest) if largest >= 0 else None
        return found

    def max_timestamp(self, segment: Segment) -> int:
        if not segment.times_known:
            self._ask(segment, SegmentFiles.load_times)
        return segment.max_timestamp

    def closed(self, segment: Segment) -> None:
        """Called when the active segment was closed."""
        self._note_checksum(self._here.of(segment))
        if self._running_max is not None:
            self._running_max.append(max([*self._running_max[-1:], segment.max_timestamp]))

    def replaced(self, cleaned: SegmentFiles) -> None:
        """Called when a cleaned segment has replaced others."""
        self._note_checksum(cleaned)
        if cleaned.aborted():
            self._here.aborting.add(cleaned.segment.base_offset)
        self._aborting_known = _NOTHING_KNOWN
        self.forget_times()

    def forget_times(self) -> None:
        """Called when closed segments were removed or replaced."""
        self._running_max = None

    def forget(self) -> None:
        """Called before batches are truncated: others may take their place."""
        self._here.drop_summary()
        self._txn_checksums.clear()
        self._aborting_known = _NOTHING_KNOWN
        self.forget_times()

    async def learn_times(self) -> None:
        """Gather the timestamps of many segments in a thread, so that a look-up need not do it on the event loop."""
        async with self._learning:
            unknown = self._unknown_times()
            if len(unknown) < _WORTH_A_THREAD:
                return
            copies = [_unread(segment) for segment in unknown]
            await self._here.disk.in_thread(partial(_read_times, self._here, copies))
            for segment, read in zip(unknown, copies, strict=True):
                if read.times_known and not segment.times_known:
                    segment.adopt_times(read)

    @property
    def must_learn_times(self) -> bool:
        """Whether a look-up by time should wait for `learn_times`."""
        return len(self._unknown_times()) >= _WORTH_A_THREAD

    def _unknown_times(self) -> list[Segment]:
        if self._running_max is not None or not self._bounded:
            return []
        return [segment for segment in self._log.segments[self._first_unbounded() : -1] if not segment.times_known]

    def _first_reaching(self, timestamp: int) -> int:
        """The index of the first segment that may have a record with at least `timestamp`."""
        if self._bounded:
            base_offset = self._ask_summary(lambda summary: summary.first_reaching(timestamp))
            if base_offset is not None:
                index = self._log.segment_at(base_offset)
                if self.max_timestamp(self._log.segments[index]) >= timestamp:
                    return index
                self._bounded = False
                self._running_max = None
        first = self._first_unbounded()
        return first + bisect_left(self._gathered(first), timestamp)

    def _first_unbounded(self) -> int:
        """The index of the first segment whose timestamps must be gathered."""
        base_offset = self._ask_summary(lambda summary: summary.header.active_base_offset) if self._bounded else None
        return self._log.segment_at(base_offset) if base_offset is not None else 0

    def _gathered(self, first: int) -> list[int]:
        if self._running_max is None:
            bounds = {} if self._bounded else self._summarized_maxima()
            times = (self._bound(segment, bounds) for segment in self._log.segments[first:-1])
            self._running_max = list(accumulate(times, max))
        return self._running_max

    def _bound(self, segment: Segment, bounds: dict[int, int]) -> int:
        """The largest timestamp of a segment, or an upper bound of it from `bounds`."""
        if not segment.times_known and (bound := bounds.get(segment.base_offset)) is not None:
            return bound
        return self.max_timestamp(segment)

    # The summary of a clean close.

    def _ask_summary(self, look: Callable[[SummaryFile], T]) -> T | None:
        """Apply `look` to the summary; None if there is no valid one."""
        if not self._here.has_summary:
            return None
        try:
            if self._summary is None:
                self._summary = SummaryFile(self._here.open_summary(), self._log)
            return look(self._summary)
        except BadSummary as error:
            warn("summary.dropped", log=self._log.name, reason=error)
            self._here.drop_summary()
            self.forget_times()
            return None

    def _summarized_maxima(self) -> dict[int, int]:
        """The largest timestamps from the summary, by base offset of today's segments. The cleaner may have merged
        several summarized segments into one."""
        maxima: dict[int, int] = {}
        entries = self._ask_summary(list) or []
        for entry in entries[:-1]:
            segment = self._log.segments[self._log.segment_at(entry.base_offset)]
            if segment.base_offset <= entry.base_offset:
                bound = maxima.get(segment.base_offset, NO_TIMESTAMP)
                maxima[segment.base_offset] = max(bound, entry.max_timestamp)
        if entries:
            # The last segment was active and has grown. The cleaner may have merged it with others.
            grown = self._log.segments[self._log.segment_at(entries[-1].base_offset)]
            maxima.pop(grown.base_offset, None)
        return maxima

    def summarize(self) -> None:
        """Write the summary: each segment's largest timestamp, so that the next process need not read every segment,
        and its size, so that a missing one is noticed. A log of one segment needs none: its checkpoint states where it
        ended."""
        log = self._log
        self._note_checksum(self._here.of(log.active))
        if not self._here.has_summary and len(log.segments) == 1 and not self._txn_checksums:
            return
        try:
            entries = list(self._entries())
        except CorruptBatch as error:
            warn("summary.not_written", log=log.name, reason=error)
            self._here.drop_summary()  # An outdated summary would have the log refused.
            return
        header = self._ask_summary(lambda summary: summary.header)
        if header is None or header.end_offset != log.end_offset or entries != self._ask_summary(list):
            epoch = log.epochs.epoch_at(log.end_offset - 1)
            self._here.write_summary(encode_summary(log.end_offset, epoch, entries))

    def _entries(self) -> Iterator[SummaryEntry]:
        written = {entry.base_offset: entry for entry in self._ask_summary(list) or []}
        bounds = self._summarized_maxima()
        running_max = NO_TIMESTAMP
        for segment in self._log.segments:
            base_offset, size = segment.base_offset, segment.size
            largest = self._bound(segment, bounds)
            running_max = max(running_max, largest)
            checksum = self._txn_checksums.get(base_offset)
            if checksum is None and base_offset in written:
                checksum = written[base_offset].size, written[base_offset].txn_checksum
            vouched = checksum[1] if checksum is not None and checksum[0] == size else UNKNOWN
            yield SummaryEntry(base_offset, running_max, size, largest, vouched)

    # Aborted transactions.

    def aborted(self, first_offset: int, upper_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that overlap the offsets from `first_offset` up to `upper_offset` (exclusive)."""
        found: list[AbortedTxn] = []
        log, aborting = self._log, self._gathered_aborting()
        first = log.segments[log.segment_at(first_offset)].base_offset
        for base_offset in aborting[bisect_left(aborting, first) :]:
            index = log.segment_at(base_offset)
            if log.segments[index].base_offset != base_offset:
                continue
            aborted = self._aborted_in(index)
            found += overlapping(aborted, first_offset, upper_offset)
            if any(txn.last_stable_offset >= upper_offset for txn in aborted):
                break
        return found

    def may_be_aborted(self, offset: int) -> bool:
        """Whether any segment from a batch at `offset` on has a transaction index. Mostly none has."""
        aborting = self._gathered_aborting()
        return bool(aborting) and aborting[-1] >= self._log.segments[self._log.segment_at(offset)].base_offset

    def _gathered_aborting(self) -> list[int]:
        known = self._here.aborting
        if self._aborting_known != len(known):
            vouched = {entry.base_offset for entry in self._ask_summary(list) or [] if entry.txn_checksum != UNKNOWN}
            self._aborting = sorted(known | vouched | self._txn_checksums.keys())
            self._aborting_known = len(known)
        return self._aborting

    def make_aborted_readable(self, index: int) -> None:
        """Rebuild the transaction index of a segment if its bytes are not valid entries."""
        files = self._here.of(self._log.segments[index])
        try:
            files.aborted()
        except BadIndex as error:
            warn("txnindex.rebuilt", log=self._log.name, base_offset=files.segment.base_offset, reason=error)
            self._renew(files, self._rebuilt_from_log(index))

    def prepare_to_abort(self) -> None:
        """Before an abort marker is written: open the transaction index, so that a failure happens now."""
        self.make_aborted_readable(len(self._log.segments) - 1)
        self._here.of(self._log.active).prepare_to_abort()

    def _aborted_in(self, index: int) -> list[AbortedTxn]:
        """The transaction index of a segment, rebuilt from the log if the log contradicts it."""
        files = self._here.of(self._log.segments[index])
        if not files.aborted_confirmed:
            try:
                self._confirm(index, files)
                files.aborted_confirmed = True
            except BadIndex as error:
                warn("txnindex.rebuilt", log=self._log.name, base_offset=files.segment.base_offset, reason=error)
                self._renew(files, self._rebuilt_from_log(index))
            self._note_checksum(files)
        return files.aborted()

    def _confirm(self, index: int, files: SegmentFiles) -> None:
        """Check a transaction index against its recorded checksum; without one, against the log."""
        segment, aborted = files.segment, files.aborted()
        entry = self._ask_summary(lambda summary: summary.of(segment.base_offset))
        noted = (entry.size, entry.txn_checksum) if entry is not None else (segment.size, UNKNOWN)
        size, checksum = self._txn_checksums.get(segment.base_offset, noted)
        if size == segment.size and checksum != UNKNOWN:
            if txn_checksum(aborted) != checksum:
                raise BadIndex(f"CRC32C is {txn_checksum(aborted):08x}; it was {checksum:08x} when it was written")
        elif aborted and "compact" in self._log.config[CLEANUP_POLICY]:
            # The first batch of a transaction may be gone, so all entries are compared with the whole log segment.
            rebuilt = self._rebuilt_from_log(index)
            if rebuilt != aborted:
                trace("txnindex.renewed", log=self._log.name, base_offset=segment.base_offset, was=aborted, now=rebuilt)
                self._renew(files, rebuilt)
        else:
            for txn in aborted:
                self._confirm_aborted(index, txn)

    def _rebuilt_from_log(self, index: int) -> list[AbortedTxn]:
        return aborted_in(self._here, self._log.name, self._log.segments[: index + 1])

    def _renew(self, files: SegmentFiles, aborted: list[AbortedTxn]) -> None:
        files.set_aborted(aborted)
        files.sync(indexes=True)

    def _note_checksum(self, files: SegmentFiles) -> None:
        """Record the checksum of a confirmed index, unless it is empty."""
        if files.aborted_confirmed and files.aborted():
            self._txn_checksums[files.segment.base_offset] = files.segment.size, txn_checksum(files.aborted())

    def _confirm_aborted(self, index: int, txn: AbortedTxn) -> None:
        segment = self._log.segments[index]
        marker = self.locate(segment, txn.last_offset)
        if marker is None or (marker.header.base_offset, marker.header.producer_id) != (
            txn.last_offset,
            txn.producer_id,
        ):
            raise BadIndex(f"no marker of producer {txn.producer_id} at offset {txn.last_offset}")
        ended = marker_in(marker.header, self._here.of(segment).log.read(marker.position, marker.header.size))
        if ended is None or ended.control_type is not ControlType.ABORT:
            raise BadIndex(f"the batch of producer {txn.producer_id} at offset {txn.last_offset} aborts nothing")
        # The stable offset recorded then may lie before this transaction, because an older one was still open.
        if not max(txn.first_offset, txn.last_stable_offset - 1) <= txn.last_offset:
            raise BadIndex(f"{txn} contradicts itself")
        if txn.first_offset < self._log.log_start_offset:
            return  # The first batch may have been removed.
        first = self.locate(self._log.segments[self._log.segment_at(txn.first_offset)], txn.first_offset)
        header = first.header if first is not None else None
        if header is None or (header.base_offset, header.producer_id) != (txn.first_offset, txn.producer_id):
            raise BadIndex(f"no batch of producer {txn.producer_id} at offset {txn.first_offset}")


def _unread(segment: Segment) -> Segment:
    return Segment(
        segment.base_offset,
        size=segment.size,
        offset_entries=segment.offset_entries,
        time_entries=segment.time_entries,
        times_known=False,
    )


def _read_times(here: PartitionFiles, segments: list[Segment]) -> None:
    """Read the timestamps of segments through separate file handles, because the log keeps using and closing its own.
    Errors are ignored here; the look-up meets and handles them."""
    for segment in segments:
        files = SegmentFiles(here.disk, here.path, segment)
        with suppress(BadIndex, CorruptBatch, OSError):
            files.load_times()
        files.close()
