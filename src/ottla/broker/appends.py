"""Batches that are checked and not written yet: those of a partition are written with one call of the system.

Writing many small pieces costs several times what writing them at once does: each call looks up its pages, and most
write the page again that the one before ended in.

Rule 1: nothing happens between what is taken first and `write` but further taking: whoever does anything else to a
        partition, or answers a client in another way, writes first.
Rule 2: what cannot be written behind what is there already is tried again alone; what cannot be written alone goes the
        long way (`produce_lane`).
Rule 3: all are told what became of them, in the order they were taken, also those of a partition that failed.
"""

from typing import TYPE_CHECKING, Protocol

from ottla.kernel import Exchange, Run
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
    def exchange(self) -> Exchange: ...

    def refusals(self, refusal: Refused, answers: bytes) -> bytes: ...


class Appends:
    def __init__(self) -> None:
        self._runs: dict[Partition, Run] = {}
        self._taken: list[tuple[Asker, Lane, Partition, bytes]] = []

    def take(self, asker: Asker, lane: Lane, partition: "Partition", data: memoryview, position: int) -> int | None:
        """Where the requests of a lane end that will be appended; None where the first has to go the long way."""
        run = self._runs.get(partition)
        taken = run.take(data, position, lane.exchange) if run is not None else None
        if taken is None:
            if run is not None:
                self.write()
            run = partition.begin_run()
            taken = run.take(data, position, lane.exchange) if run is not None else None
            if run is None or taken is None:
                return None
            self._runs[partition] = run
        end, answers = taken
        self._taken.append((asker, lane, partition, answers))
        return end

    def write(self) -> None:
        """Append what was taken, and let everyone know."""
        if not self._taken:
            return
        taken, self._taken = self._taken, []
        runs, self._runs = self._runs, {}
        failures: dict[Partition, Exception] = {}
        for partition, run in runs.items():
            try:
                partition.append_run(run)
            except Exception as error:
                failures[partition] = error
        for asker, lane, partition, answers in taken:
            failure = failures.get(partition)
            if failure is None:
                asker.answered(answers)
            elif isinstance(failure, Refused):
                asker.answered(lane.refusals(failure, answers))
            else:
                asker.broken(failure)
