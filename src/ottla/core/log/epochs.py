"""The first offset of every leader epoch in a log.

Rule 1: epochs and their start offsets grow together; a new entry removes those it contradicts.
Rule 2: the end of an epoch is the start of the next one present, or the log end for the latest.
Rule 3: when the front of the log is removed, the epoch that covered it stays and starts at the new front.
"""

from bisect import bisect_right

from ottla.core.log.checkpoints import EpochStart

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The leader epochs of one log."""

    def __init__(self, entries: list[EpochStart] | None = None) -> None:
        self.entries: list[EpochStart] = []
        for entry in entries or []:
            self.assign(*entry)

    @property
    def latest(self) -> int:
        return self.entries[-1].epoch if self.entries else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` wrote from `start_offset` on; returns whether this changed anything."""
        entries = self.entries
        if epoch < 0 or (entries and entries[-1].epoch == epoch and start_offset >= entries[-1].start_offset):
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochStart(epoch, start_offset))
        return True

    def truncate_end(self, end_offset: int) -> bool:
        count = len(self.entries)
        while self.entries and self.entries[-1].start_offset >= end_offset:
            self.entries.pop()
        return len(self.entries) != count

    def truncate_start(self, start_offset: int) -> bool:
        covered = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if covered == 0 or (covered == 1 and self.entries[0].start_offset == start_offset):
            return False
        self.entries[:covered] = [EpochStart(self.entries[covered - 1].epoch, start_offset)]
        return True

    def reach_back(self, start_offset: int) -> None:
        """Extend the first epoch back to `start_offset`, when earlier offsets are written again."""
        if self.entries and self.entries[0].start_offset > start_offset:
            self.entries[0] = EpochStart(self.entries[0].epoch, start_offset)

    def end_offset_of(self, epoch: int, log_end_offset: int) -> EpochStart:
        """The largest known epoch up to `epoch` and where it ended (OffsetForLeaderEpoch)."""
        if epoch == UNDEFINED_EPOCH:
            return EpochStart(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if self.entries and self.latest == epoch:
            return EpochStart(epoch, log_end_offset)
        following = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if following == len(self.entries):
            return EpochStart(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        known = self.entries[following - 1].epoch if following else epoch
        return EpochStart(known, self.entries[following].start_offset)

    def epoch_at(self, offset: int) -> int:
        found = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[found - 1].epoch if found else UNDEFINED_EPOCH
