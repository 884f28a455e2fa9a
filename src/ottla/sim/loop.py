"""An event loop under virtual time.

Rule 1: nobody sleeps. When nothing can run, time jumps to the next timer.
Rule 2: nothing comes from outside: no sockets, and no threads but those that stand still while the loop runs
        (`threads.py`). So the same seed gives the same order of events.
Rule 3: when nothing can run and no timer is set, nothing will ever happen again: that is a `Deadlock`.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NoReturn, TypeVar

from ottla.sim.clock import SimClock
from ottla.sim.threads import HasWorkers

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Some task waits for what can never come."""


class VirtualSelector(selectors.SelectSelector):
    """Waits by moving the clock, never by waiting."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("no task is runnable and no timer is set")
        self._clock.seconds += max(timeout, 0.0)
        return []


class SimLoop(asyncio.SelectorEventLoop, HasWorkers):
    """The loop of one simulated run, with the one source of chance that code under simulation may use."""

    def __init__(self, clock: SimClock, random: Random) -> None:
        super().__init__(VirtualSelector(clock))
        HasWorkers.__init__(self)
        self.clock = clock
        self.random = random
        self._unfinished: dict[asyncio.Task[Any], None] = {}  # In the order of birth: a set would have none.

    def time(self) -> float:
        return self.clock.seconds

    def run_in_executor(self, *_: object) -> NoReturn:
        raise RuntimeError("a thread under simulation would make the order of events random; use Disk.in_thread")

    def cancel_unfinished(self) -> None:
        """Cancel what still runs, oldest first, and let it clean up."""
        while self._unfinished:
            tasks = list(self._unfinished)
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        self._unfinished[task] = None
        task.add_done_callback(lambda done: self._unfinished.pop(done, None))
        return task


def run(main: Callable[[SimLoop], Coroutine[Any, Any, T]], seed: int, clock: SimClock | None = None) -> T:
    """Run `main` to its end under virtual time; everything left to chance comes from the seed."""
    loop = SimLoop(clock or SimClock(), Random(seed))
    try:
        return loop.run_until_complete(main(loop))
    finally:
        try:
            loop.cancel_unfinished()
        finally:
            loop.abandon_workers()
            loop.close()
