"""Batches of Produce requests that are written together at the end of a log.

Rule 1: between begin and append of a run nothing else changes the log. So the offsets of its batches are known before
        they are written. The kernel assigns them from `place` on (`kernel/reference/produce_request`).
Rule 2: a place ends where the active segment would have to roll.
Rule 3: the first batch of a producer with an id is compared with the producer state of the log (`admit`). Then the
        place has the next sequence of the producer, and the kernel checks its further batches.
Rule 4: batches are outside of transactions.
Rule 5: a run that was appended can be used for the next batches if nothing else has changed the log since. Then the
        limits in its place are still right.
"""

from ottla.core.log.segment import Room
from ottla.core.log.state import LogState
from ottla.kernel import BatchHeader, Buffer, ProducedPart, ProducePlace

_SEQUENCES_MAX = 1024
"""With more sequences than this they are dropped, so that a run that is used for long stays small."""


class AppendRun:
    __slots__ = ("_limits", "_producers", "_segment", "batches", "headers", "place", "size")

    def __init__(self, log: LogState, room: Room, leader_epoch: int) -> None:
        self.place = ProducePlace(log.end_offset, leader_epoch, log.log_start_offset, *room, {})
        """The offset of the next batch, and the limits for it."""
        self._segment, self._limits, self._producers = log.segments[-1], log.limits, log.producers
        self.clear()

    def clear(self) -> None:
        """Remove all batches, because they were appended."""
        self.batches: list[Buffer] = []
        """Stamped batches: views of the buffers in which they were received."""
        self.headers: list[BatchHeader] = []
        self.size = 0
        """The size of all batches in bytes."""

    def goes_on(self, log: LogState, leader_epoch: int) -> bool:
        """Whether a run that was appended may take the next batches of its log (rule 5)."""
        place = self.place
        if (
            place.next_offset != log.end_offset
            or place.leader_epoch != leader_epoch
            or place.log_start_offset != log.log_start_offset
            or self._segment is not log.segments[-1]
            or self._limits is not log.limits
            or self._producers is not log.producers
            or self._segment.rolls_by_clock
        ):
            return False
        if len(place.sequences) > _SEQUENCES_MAX:
            place.sequences.clear()
        return True

    def admit(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Check the first batch of a producer with an id in this run. If it may be appended, its sequence is added to
        the place, and the result is True."""
        if not self._producers.may_append(producer_id, epoch, sequence):
            return False
        self.place.sequences[producer_id] = epoch, sequence
        return True

    def add(self, part: ProducedPart) -> None:
        """Add batches that the kernel has numbered and stamped."""
        _, _, place, headers, batches, producers = part
        before, self.place = self.place, place
        for producer_id, epoch, sequence in producers:
            place.sequences[producer_id] = epoch, sequence
        self.size += before.bytes_left - place.bytes_left
        self.headers += headers
        self.batches += batches
