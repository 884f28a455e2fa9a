"""The transcript of a run: what the code said through `trace`, what the workload did, what the disk was asked.

Two runs of one seed are the same run exactly when their transcripts are; the hash stands for the whole. Most are never
read, so lines are put into words when somebody asks for them.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.observe.trace import Event, sink_installed
from ottla.sim.clock import SimClock


class Transcript:
    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._told: list[str] = []
        self._untold: list[tuple[float, str] | tuple[float, int, str, str]] = []

    @property
    def lines(self) -> list[str]:
        for seconds, *told in self._untold:
            text = told[0] if len(told) == 1 else "  disk {} {} {}".format(*told)
            self._told.append(f"{seconds:12.6f} {text}")
        self._untold.clear()
        return self._told

    def note(self, text: str) -> None:
        self._untold.append((self._clock.seconds, text))

    def disk_call(self, step: int, operation: str, path: str) -> None:
        """An observer for `SimDisk`."""
        self._untold.append((self._clock.seconds, step, operation, path))

    def event(self, event: Event) -> None:
        """A sink for `trace`."""
        self.note(f"  {'! ' if event.warning else ''}{event}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        with sink_installed(self.event):
            yield

    def digest(self) -> str:
        """Of all lines. Whoever wants the bytes written in it, too, notes the disk's own digest at the end."""
        return hashlib.blake2b("\n".join(self.lines).encode(), digest_size=8).hexdigest()
