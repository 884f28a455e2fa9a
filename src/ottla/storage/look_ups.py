"""Asking the indexes of a log's segments.

Rule 1: an index that turns out to lie is rebuilt from the log, for good, and asked again; so is a transaction index
        that the markers in the log contradict.
Rule 2: by time, the first segment to look at is found by halving: per closed segment the largest timestamp up to its
        end never falls. It is gathered at the first look-up, kept up while segments come, and gathered anew when some
        have gone.
"""

from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from typing import TypeVar

from ottla.config import CLEANUP_POLICY
from ottla.core.log.indexes import AbortedTxn, BadIndex, overlapping
from ottla.core.log.log import Log
from ottla.core.log.segment import Segment
from ottla.observe.trace import warn
from ottla.storage.partition_files import PartitionFiles
from ottla.storage.recovery import aborted_in
from ottla.storage.segment_files import Found, SegmentFiles, TimeFound

T = TypeVar("T")


class LookUps:
    def __init__(self, log: Log, here: PartitionFiles) -> None:
        self._log = log
        self._here = here
        self._running_max: list[int] | None = None
        """Per closed segment the largest timestamp up to its end; None when it must be gathered anew."""

    def locate(self, segment: Segment, offset: int) -> Found | None:
        """The first batch of a segment that ends at or after `offset`."""
        return self._ask(segment, lambda files: files.locate(offset))

    def _ask(self, segment: Segment, look: Callable[[SegmentFiles], T]) -> T:
        files = self._here.of(segment)
        try:
            return look(files)
        except BadIndex as error:
            warn("index.rebuilt", log=self._log.name, base_offset=segment.base_offset, reason=error)
            files.mend(self._log.config)
            return look(files)

    # By time.

    def find_time(self, timestamp: int) -> TimeFound | None:
        """The first record whose timestamp is at least `timestamp`."""
        segments = self._log.segments
        for index in range(bisect_left(self._closed_max_timestamps(), timestamp), len(segments)):
            if self.max_timestamp(segments[index]) < timestamp:
                continue
            found = self._ask(segments[index], lambda files: files.find_time(timestamp, self._log.log_start_offset))
            if found is not None:
                return found
        return None

    def find_max_timestamp(self) -> TimeFound | None:
        """The first record that has the largest timestamp of all."""
        largest = max(self.max_timestamp(segment) for segment in self._log.segments)
        return self.find_time(largest) if largest >= 0 else None

    def max_timestamp(self, segment: Segment) -> int:
        if not segment.times_known:
            self._ask(segment, SegmentFiles.load_times)
        return segment.max_timestamp

    def closed(self, segment: Segment) -> None:
        """The active segment became a closed one."""
        if self._running_max is not None:
            self._running_max.append(max([*self._running_max[-1:], segment.max_timestamp]))

    def forget_times(self) -> None:
        """Closed segments went or were replaced."""
        self._running_max = None

    def _closed_max_timestamps(self) -> list[int]:
        if self._running_max is None:
            self._running_max = list(accumulate(map(self.max_timestamp, self._log.segments[:-1]), max))
        return self._running_max

    # Aborted transactions.

    def aborted(self, first_offset: int, upper_offset: int) -> list[AbortedTxn]:
        """Those that touch the offsets from `first_offset` to before `upper_offset`."""
        found: list[AbortedTxn] = []
        for index in range(self._log.segment_at(first_offset), len(self._log.segments)):
            aborted = self._aborted_in(index)
            found += overlapping(aborted, first_offset, upper_offset)
            if any(txn.last_stable_offset >= upper_offset for txn in aborted):
                break
        return found

    def _aborted_in(self, index: int) -> list[AbortedTxn]:
        """The transaction index of a segment, rebuilt from the log if that contradicts it."""
        files = self._here.of(self._log.segments[index])
        if not files.aborted_confirmed:
            try:
                for txn in files.aborted():
                    self._confirm_aborted(index, txn)
                files.aborted_confirmed = True
            except BadIndex as error:
                warn("txnindex.rebuilt", log=self._log.name, base_offset=files.segment.base_offset, reason=error)
                files.set_aborted(aborted_in(self._here, self._log.name, self._log.segments[: index + 1]))
        return files.aborted()

    def _confirm_aborted(self, index: int, txn: AbortedTxn) -> None:
        marker = self.locate(self._log.segments[index], txn.last_offset)
        if marker is None or not marker.header.is_control or marker.header.producer_id != txn.producer_id:
            raise BadIndex(f"no marker of producer {txn.producer_id} at offset {txn.last_offset}")
        # What was stable then may lie before this transaction: an older one was still open.
        if not max(txn.first_offset, txn.last_stable_offset - 1) <= txn.last_offset:
            raise BadIndex(f"{txn} contradicts itself")
        first_segment = self._log.segments[self._log.segment_at(txn.first_offset)]
        if "compact" in self._log.config[CLEANUP_POLICY] or txn.first_offset < self._log.log_start_offset:
            return  # The first batch may be gone.
        first = self.locate(first_segment, txn.first_offset)
        header = first.header if first is not None else None
        if header is None or (header.base_offset, header.producer_id) != (txn.first_offset, txn.producer_id):
            raise BadIndex(f"no batch of producer {txn.producer_id} at offset {txn.first_offset}")
