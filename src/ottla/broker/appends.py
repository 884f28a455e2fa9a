"""Batches that are checked and not written yet: those of a partition are written with one call of the system.

Writing many small pieces costs several times what writing them at once does: each call looks up its pages, and most
write the page again that the one before ended in.

Rule 1: nothing happens between the first check and `write` but further checks: whoever does anything else to a
        partition, or answers a client in another way, writes first.
Rule 2: what cannot be written behind what is there already is tried again alone; what cannot be written alone goes the
        long way (`produce_lane`).
Rule 3: all are told what became of them, in the order they were taken, also those of a partition that failed.
"""

from typing import TYPE_CHECKING, Protocol

from ottla.kernel import Run, joined
from ottla.wire.errors import Refused

if TYPE_CHECKING:
    from ottla.broker.partition import Partition


class Asker(Protocol):
    """Who sent a run, and hears what became of it."""

    def answered(self, answers: bytes) -> None: ...

    def broken(self, error: Exception) -> None: ...


class Lane(Protocol):
    """Requests that are alike."""

    @property
    def acks(self) -> int: ...

    @property
    def pattern(self) -> bytes: ...

    def answers(self, partition: "Partition", run: Run) -> bytes: ...

    def refusals(self, refusal: Refused, run: Run) -> bytes: ...


class Appends:
    def __init__(self) -> None:
        self._together: dict[Partition, Run] = {}
        self._taken: list[tuple[Asker, Lane, Partition, Run]] = []

    def take(self, asker: Asker, lane: Lane, partition: "Partition", data: memoryview, position: int) -> int | None:
        """Where the requests of a lane end that will be appended; None where the first has to go the long way."""
        before = self._together.get(partition)
        run = partition.check_run(data, position, lane.pattern, acks=lane.acks, before=before)
        if run is None and before is not None:
            self.write()
            before, run = None, partition.check_run(data, position, lane.pattern, acks=lane.acks)
        if run is None:
            return None
        self._together[partition] = run if before is None else joined(before, run)
        self._taken.append((asker, lane, partition, run))
        return run.end

    def write(self) -> None:
        """Append what was taken, and let everyone know."""
        if not self._taken:
            return
        taken, self._taken = self._taken, []
        together, self._together = self._together, {}
        failures: dict[Partition, Exception] = {}
        for partition, run in together.items():
            try:
                partition.append_run(run)
            except Exception as error:
                failures[partition] = error
        for asker, lane, partition, run in taken:
            failure = failures.get(partition)
            if failure is None:
                asker.answered(lane.answers(partition, run))
            elif isinstance(failure, Refused):
                asker.answered(lane.refusals(failure, run))
            else:
                asker.broken(failure)
