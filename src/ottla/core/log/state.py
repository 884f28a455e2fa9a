"""A partition's log as a state machine: where the next batch goes, when to roll, what readers may see.

Rule 1: offsets only grow. A leader assigns offsets; a follower accepts batches at or past its end.
Rule 2: log start <= last stable offset <= high watermark <= log end. The watermark decreases only when the log is
        truncated below it; nothing above it is served to consumers.
Rule 3: the state changes after the write: `placement` decides, the caller writes, `appended` applies.
Rule 4: segments cover the log without overlap; the last one is active and the only one written to.
Rule 5: below the recovery point everything is durable. It rises after a sync, and falls only by truncation.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from ottla.config import FLUSH_MESSAGES, Config
from ottla.config.notation import LONG_MAX
from ottla.core.log.epochs import LeaderEpochs
from ottla.core.log.producers import CompletedTxn, Producers
from ottla.core.log.segment import IndexEntries, RollReason, Segment, SegmentLimits
from ottla.kernel import BatchHeader, EndTxnMarker
from ottla.wire.errors import Error, Refused


class Effects(NamedTuple):
    """The changes that an appended batch makes in other files: index entries, an ended transaction, a new epoch."""

    entries: list[IndexEntries]
    completed: CompletedTxn | None
    new_epoch: bool


class LogState:
    """The state of one log."""

    def __init__(self, name: str, config: Config, segments: list[Segment], *, end_offset: int) -> None:
        self.name = name
        self.reconfigure(config)
        self.segments = segments
        self.log_start_offset = segments[0].base_offset
        self.end_offset = end_offset
        self.high_watermark = self.log_start_offset
        self.recovery_point = self.log_start_offset
        self.producers = Producers(name, self.log_start_offset)
        self.epochs = LeaderEpochs()

    def reconfigure(self, config: Config) -> None:
        self.config = config
        self.limits = SegmentLimits.of(config)
        self._flush_messages = config[FLUSH_MESSAGES]

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        """The offset up to which readers of committed records may read: all records before it are below the watermark
        and in no undecided transaction."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        # Records may be deleted up to the middle of an open transaction; readers start after that.
        return max(min(unstable, self.high_watermark), self.log_start_offset)

    @property
    def flushes_messages(self) -> bool:
        """Whether the topic requires syncs by number of records."""
        return self._flush_messages < LONG_MAX

    @property
    def must_flush(self) -> bool:
        return self.end_offset - self.recovery_point >= self._flush_messages

    # Look-ups.

    def segment_at(self, offset: int) -> int:
        """The index of the segment that covers `offset`; the first one for anything before it."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1  # The case of most readers.
        return max(0, bisect_right(segments, offset, key=_base_offset) - 1)

    def end_of(self, index: int) -> int:
        """The offset after the last one the segment may hold."""
        return self.segments[index + 1].base_offset if index + 1 < len(self.segments) else self.end_offset

    def check_readable(self, offset: int) -> None:
        """Raises Refused for an offset outside of the log. An offset above the watermark is not refused: a consumer
        that is refused after a leader change would reset its position."""
        if not self.log_start_offset <= offset <= self.end_offset:
            raise Refused(
                Error.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset} is outside of {self.log_start_offset} to {self.end_offset}",
            )

    # Appending.

    def placement(self, header: BatchHeader, now_ms: int) -> RollReason | None:
        """Where the batch goes: None for the active segment, else the reason for a new one."""
        limits = self.limits
        if header.size > limits.bytes_max:
            raise Refused(
                Error.RECORD_LIST_TOO_LARGE,
                f"{self.name}: the record batch has {header.size} bytes and must fit into one segment; "
                f"segment.bytes is {limits.bytes_max}",
            )
        if header.base_offset < self.end_offset:
            raise Refused(
                Error.OFFSET_OUT_OF_RANGE,
                f"{self.name}: batch with offsets {header.base_offset} to {header.last_offset} "
                f"does not follow the log end {self.end_offset}",
            )
        return self.segments[-1].must_roll(header, limits, now_ms)

    def rolled(self, segment: Segment) -> None:
        """Apply that a new segment was opened at the end. The producer state counts as replayed up to it."""
        self.segments.append(segment)
        self.producers.end_offset = segment.base_offset

    def appended(self, header: BatchHeader, marker: EndTxnMarker | None) -> Effects:
        """Apply a batch that was written at the end of the active segment."""
        entries = self.segments[-1].appended((header,), self.limits.index_interval_bytes)
        self.end_offset = header.next_offset
        completed = self.producers.replay(header, marker)
        new_epoch = self.epochs.assign(header.leader_epoch, header.base_offset)
        # Equivalent to calling Effects, in half the time.
        return tuple.__new__(Effects, (entries, completed, new_epoch))

    def appended_run(self, headers: Sequence[BatchHeader]) -> tuple[list[IndexEntries], bool]:
        """Apply written batches of one leader epoch that are outside of transactions."""
        entries, first = self.segments[-1].appended(headers, self.limits.index_interval_bytes), headers[0]
        for header in headers:
            if header.producer_id >= 0:
                self.producers.replay_data(header)
        self.end_offset = self.producers.end_offset = headers[-1].next_offset
        return entries, self.epochs.assign(first.leader_epoch, first.base_offset)

    def advance_high_watermark(self, offset: int) -> int:
        """Raise the watermark, never past the log end, never lowering it; returns the new one."""
        offset = min(offset, self.end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.on_high_watermark(offset)
        return self.high_watermark

    def flushed(self, offset: int) -> None:
        self.recovery_point = max(self.recovery_point, min(offset, self.end_offset))

    # Removing.

    def is_new_start(self, offset: int) -> bool:
        """Whether there are records before `offset`. Raises Refused if they must not be deleted."""
        if offset > self.high_watermark:
            raise Refused(
                Error.OFFSET_OUT_OF_RANGE,
                f"{self.name}: records up to offset {offset} cannot be deleted: "
                f"the high watermark is {self.high_watermark}",
            )
        return offset > self.log_start_offset

    def advance_log_start(self, offset: int) -> bool:
        """Mark the records before `offset` as deleted; returns whether this changed the log start."""
        if not self.is_new_start(offset):
            return False
        self.log_start_offset = offset
        self.epochs.truncate_start(offset)
        self.producers.on_log_start(offset)
        return True

    def truncated(self, offset: int, producers: Producers) -> None:
        """Apply a truncation: the log ends at `offset`, and `producers` is the state rebuilt for it."""
        self.end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.epochs.truncate_end(offset)
        self.producers = producers
        producers.on_high_watermark(self.high_watermark)

    def restarted(self, segment: Segment) -> None:
        """Apply the removal of all segments: the log is empty and begins at the base offset of the new segment."""
        offset = segment.base_offset
        self.segments = [segment]
        self.log_start_offset = self.end_offset = self.high_watermark = self.recovery_point = offset
        self.producers = Producers(self.name, offset)
        self.epochs = LeaderEpochs()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
