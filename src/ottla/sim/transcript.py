"""The transcript of a run: events of `trace`, operations of the workload, calls of the disk.

Two runs of one seed are equal exactly if their transcripts are; the hash represents the whole. Most are never read, so
lines are formatted on demand.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.observe.trace import Event, sink_installed
from ottla.sim.machine.clock import SimClock


class Transcript:
    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._formatted: list[str] = []
        self._unformatted: list[tuple[float, str] | tuple[float, int, str, str]] = []

    @property
    def lines(self) -> list[str]:
        for seconds, *parts in self._unformatted:
            text = parts[0] if len(parts) == 1 else "  disk {} {} {}".format(*parts)
            self._formatted.append(f"{seconds:12.6f} {text}")
        self._unformatted.clear()
        return self._formatted

    def note(self, text: str) -> None:
        self._unformatted.append((self._clock.seconds, text))

    def disk_call(self, step: int, operation: str, path: str) -> None:
        """Record a call of the disk. Passed to `SimDisk` as its observer."""
        self._unformatted.append((self._clock.seconds, step, operation, path))

    def event(self, event: Event) -> None:
        """Record an event. Installed as the sink of `trace`."""
        self.note(f"  {'! ' if event.warning else ''}{event}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        with sink_installed(self.event):
            yield

    def digest(self) -> str:
        """A hash of all lines. To include the written bytes, add the disk's digest at the end."""
        return hashlib.blake2b("\n".join(self.lines).encode(), digest_size=8).hexdigest()
