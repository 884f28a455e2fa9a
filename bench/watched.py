"""`python -m bench.watched FILE serve ...`: runs `ottla serve ...`, and measures how long its event loop was blocked.

A thread schedules a callback on the loop repeatedly, and measures the CPU time of the loop's thread until it runs. A
new event would have waited as long. CPU time does not depend on the machine's other load; it excludes waiting (for a
disk, a lock), which `wall_s` includes. FILE is shared memory: `Holds` reads it in another process.
"""

import asyncio
import mmap
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from ottla.broker.node import Node
from ottla.cli import main

_LAYOUT = Struct("=dddd")
_RESET = Struct("=d")
_PAUSE_S = 0.001
_STACK_AFTER_S = float(os.environ.get("OTTLA_WATCH_STACK_S", "0"))
"""Print the loop's stack after this long, to find what blocks it; 0 prints nothing."""


class Hold(NamedTuple):
    signs: int
    cpu_s: float
    wall_s: float


class Holds:
    """The longest holds of a node since the last reset."""

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.write(bytes(_LAYOUT.size))
            file.flush()
            self._shared = mmap.mmap(file.fileno(), _LAYOUT.size)

    def reset(self) -> None:
        """Reset; returns when the watcher has done so and the loop has run since."""
        _RESET.pack_into(self._shared, 0, 1.0)
        while _RESET.unpack_from(self._shared, 0)[0]:
            time.sleep(_PAUSE_S)

    def read(self) -> Hold:
        """Waits for a callback scheduled after this call, because a hold may still be in progress."""
        _, before, _, _ = _LAYOUT.unpack_from(self._shared)
        while True:
            _, signs, cpu_s, wall_s = _LAYOUT.unpack_from(self._shared)
            if signs >= before + 2:
                return Hold(int(signs), cpu_s, wall_s)
            time.sleep(_PAUSE_S)


class _Watcher(threading.Thread):
    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name="watcher", daemon=True)
        with Path(path).open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._loop = loop
        self._watched = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._watched)
        self._given = threading.Event()
        self._given_at = 0.0

    def run(self) -> None:
        signs, cpu_s, wall_s = 0, 0.0, 0.0
        while True:
            asked_at, asked_wall = time.clock_gettime(self._clock), time.perf_counter()
            self._given.clear()
            try:
                self._loop.call_soon_threadsafe(self._give)
            except RuntimeError:
                return  # The node has stopped.
            self._wait()
            signs += 1
            cpu_s = max(cpu_s, self._given_at - asked_at)
            wall_s = max(wall_s, time.perf_counter() - asked_wall)
            (reset,) = _RESET.unpack_from(self._shared, 0)
            if reset:
                signs, cpu_s, wall_s = 0, 0.0, 0.0
            _LAYOUT.pack_into(self._shared, 0, 0.0, signs, cpu_s, wall_s)
            time.sleep(_PAUSE_S)

    def _give(self) -> None:
        self._given_at = time.clock_gettime(self._clock)
        self._given.set()

    def _wait(self) -> None:
        if not _STACK_AFTER_S:
            self._given.wait()
        elif not self._given.wait(_STACK_AFTER_S):
            frame = sys._current_frames()[self._watched]
            print("held at", "".join(traceback.format_stack(frame)[-6:]), file=sys.stderr, flush=True)
            self._given.wait()


def run(path: str, arguments: list[str]) -> int:
    start = Node.start

    async def start_and_watch(node: Node) -> None:
        await start(node)
        _Watcher(path, asyncio.get_running_loop()).start()

    Node.start = start_and_watch  # type: ignore[method-assign,assignment]
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
