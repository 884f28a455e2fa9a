"""Asking the indexes of a log's segments.

Rule 1: an index that turns out to lie is rebuilt from the log, for good, and asked again; so is a transaction index
        that its checksum or the log contradicts.
Rule 2: by time, the first segment to look at is found by halving: per closed segment the largest timestamp up to its
        end never falls. Of what a clean close has summarized it is looked up in that file; of the segments since it is
        gathered at the first look-up, kept up while segments come, and gathered anew when some have gone.
Rule 3: the summary only bounds the times. A look-up that it misleads, because what was new enough is gone, sees to it
        that all segments are gathered.
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
from ottla.core.log.log import Log
from ottla.core.log.segment import NO_TIMESTAMP, Segment
from ottla.core.log.summary import UNKNOWN, BadSummary, SummaryEntry, encode_summary, txn_checksum
from ottla.kernel import ControlType, CorruptBatch
from ottla.observe.trace import trace, warn
from ottla.storage.partition_files import PartitionFiles
from ottla.storage.recovery import aborted_in, marker_in
from ottla.storage.segment_files import Found, SegmentFiles, TimeFound
from ottla.storage.summary_file import SummaryFile

T = TypeVar("T")
_WORTH_A_THREAD = 50
"""Segments to ask for their times before that is worth a thread."""
_NOTHING_KNOWN = -1


class LookUps:
    def __init__(self, log: Log, here: PartitionFiles) -> None:
        self._log = log
        self._here = here
        self._summary: SummaryFile | None = None
        self._bounded = True
        """Whether the summary has not misled anybody yet (Rule 3)."""
        self._running_max: list[int] | None = None
        """Per closed segment that the summary does not bound, the largest timestamp from the first of them up to its
        end; None when it must be gathered anew."""
        self._learning = asyncio.Lock()
        self._txn_checksums: dict[int, tuple[int, int]] = {}
        """Of the transaction indexes that were confirmed here, by base offset: the segment's size, the checksum."""
        self._aborting: list[int] = []
        """As `PartitionFiles.aborting`, sorted, and what was there according to checksums."""
        self._aborting_known = _NOTHING_KNOWN
        """How many of the former there were."""

    def locate(self, segment: Segment, offset: int) -> Found | None:
        """The first batch of a segment that ends at or after `offset`."""
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
            # Made from the log a moment ago: it is the log that contradicts itself.
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
            # The record that had it is gone.
            largest = max(self.max_timestamp(segment) for segment in self._log.segments)
            found = self.find_time(largest) if largest >= 0 else None
        return found

    def max_timestamp(self, segment: Segment) -> int:
        if not segment.times_known:
            self._ask(segment, SegmentFiles.load_times)
        return segment.max_timestamp

    def closed(self, segment: Segment) -> None:
        """The active segment became a closed one."""
        self._note_checksum(self._here.of(segment))
        if self._running_max is not None:
            self._running_max.append(max([*self._running_max[-1:], segment.max_timestamp]))

    def replaced(self, cleaned: SegmentFiles) -> None:
        """A cleaned segment took the place of others."""
        self._note_checksum(cleaned)
        if cleaned.aborted():
            self._here.aborting.add(cleaned.segment.base_offset)
        self._aborting_known = _NOTHING_KNOWN
        self.forget_times()

    def forget_times(self) -> None:
        """Closed segments went or were replaced."""
        self._running_max = None

    def forget(self) -> None:
        """Batches are about to be cut off, and others may take their place."""
        self._here.drop_summary()
        self._txn_checksums.clear()
        self._aborting_known = _NOTHING_KNOWN
        self.forget_times()

    async def learn_times(self) -> None:
        """Ask many segments for their times in a thread, so that a look-up need not do it on the event loop."""
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
        """The index of the first segment that may have a record as new as `timestamp`."""
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
        """The index of the first segment whose times have to be gathered."""
        base_offset = self._ask_summary(lambda summary: summary.header.active_base_offset) if self._bounded else None
        return self._log.segment_at(base_offset) if base_offset is not None else 0

    def _gathered(self, first: int) -> list[int]:
        if self._running_max is None:
            bounds = {} if self._bounded else self._summarized_maxima()
            times = (self._bound(segment, bounds) for segment in self._log.segments[first:-1])
            self._running_max = list(accumulate(times, max))
        return self._running_max

    def _bound(self, segment: Segment, bounds: dict[int, int]) -> int:
        """The largest timestamp of a segment, or more where only a bound is at hand."""
        if not segment.times_known and (bound := bounds.get(segment.base_offset)) is not None:
            return bound
        return self.max_timestamp(segment)

    # The summary of a clean close.

    def _ask_summary(self, look: Callable[[SummaryFile], T]) -> T | None:
        """What the summary says; None where there is none that counts."""
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
        """By base offset, what the summary says of the offsets of a closed segment, which the cleaner may have made of
        several."""
        maxima: dict[int, int] = {}
        entries = self._ask_summary(list) or []
        for entry in entries[:-1]:
            segment = self._log.segments[self._log.segment_at(entry.base_offset)]
            if segment.base_offset <= entry.base_offset:
                bound = maxima.get(segment.base_offset, NO_TIMESTAMP)
                maxima[segment.base_offset] = max(bound, entry.max_timestamp)
        if entries:
            # The last one was active, and has grown. The cleaner may have put it into a segment with others.
            grown = self._log.segments[self._log.segment_at(entries[-1].base_offset)]
            maxima.pop(grown.base_offset, None)
        return maxima

    def summarize(self) -> None:
        """Write down what the next process would have to ask every segment for, and how long each is, so that it
        notices when one is gone. A log of one segment does without: its checkpoint tells where it ended."""
        log = self._log
        self._note_checksum(self._here.of(log.active))
        if not self._here.has_summary and len(log.segments) == 1 and not self._txn_checksums:
            return
        try:
            entries = list(self._entries())
        except CorruptBatch as error:
            warn("summary.not_written", log=log.name, reason=error)
            self._here.drop_summary()  # One that is out of date would have the log refused.
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
        """Those that touch the offsets from `first_offset` to before `upper_offset`."""
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
        """Whether there is anything to look for from a batch on that begins at `offset`. Mostly there is not."""
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
        """Rebuild the transaction index of a segment where its bytes are none."""
        files = self._here.of(self._log.segments[index])
        try:
            files.aborted()
        except BadIndex as error:
            warn("txnindex.rebuilt", log=self._log.name, base_offset=files.segment.base_offset, reason=error)
            self._renew(files, self._told_by_the_log(index))

    def prepare_to_abort(self) -> None:
        """Before the end of an aborted transaction is written: what can go wrong with its index does so now."""
        self.make_aborted_readable(len(self._log.segments) - 1)
        self._here.of(self._log.active).prepare_to_abort()

    def _aborted_in(self, index: int) -> list[AbortedTxn]:
        """The transaction index of a segment, rebuilt from the log if that contradicts it."""
        files = self._here.of(self._log.segments[index])
        if not files.aborted_confirmed:
            try:
                self._confirm(index, files)
                files.aborted_confirmed = True
            except BadIndex as error:
                warn("txnindex.rebuilt", log=self._log.name, base_offset=files.segment.base_offset, reason=error)
                self._renew(files, self._told_by_the_log(index))
            self._note_checksum(files)
        return files.aborted()

    def _confirm(self, index: int, files: SegmentFiles) -> None:
        """By its checksum, where one was written down; else by the log."""
        segment, aborted = files.segment, files.aborted()
        entry = self._ask_summary(lambda summary: summary.of(segment.base_offset))
        noted = (entry.size, entry.txn_checksum) if entry is not None else (segment.size, UNKNOWN)
        size, checksum = self._txn_checksums.get(segment.base_offset, noted)
        if size == segment.size and checksum != UNKNOWN:
            if txn_checksum(aborted) != checksum:
                raise BadIndex(f"CRC32C is {txn_checksum(aborted):08x}; it was {checksum:08x} when it was written")
        elif aborted and "compact" in self._log.config[CLEANUP_POLICY]:
            # The batch that an entry begins with may be gone. So the log is asked for all of them.
            told = self._told_by_the_log(index)
            if told != aborted:
                trace("txnindex.renewed", log=self._log.name, base_offset=segment.base_offset, was=aborted, now=told)
                self._renew(files, told)
        else:
            for txn in aborted:
                self._confirm_aborted(index, txn)

    def _told_by_the_log(self, index: int) -> list[AbortedTxn]:
        return aborted_in(self._here, self._log.name, self._log.segments[: index + 1])

    def _renew(self, files: SegmentFiles, aborted: list[AbortedTxn]) -> None:
        files.set_aborted(aborted)
        files.sync(indexes=True)

    def _note_checksum(self, files: SegmentFiles) -> None:
        """Of an index that was confirmed; an empty one is not worth it."""
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
        # What was stable then may lie before this transaction: an older one was still open.
        if not max(txn.first_offset, txn.last_stable_offset - 1) <= txn.last_offset:
            raise BadIndex(f"{txn} contradicts itself")
        if txn.first_offset < self._log.log_start_offset:
            return  # The first batch may be gone.
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
    """Learn the times of segments, by files of our own: the log goes on using its, and taking them out of use. Whatever
    fails is met again, and dealt with, by the look-up."""
    for segment in segments:
        files = SegmentFiles(here.disk, here.path, segment)
        with suppress(BadIndex, CorruptBatch, OSError):
            files.load_times()
        files.close()
