"""An event loop under virtual time.

Rule 1: nobody sleeps. When nothing can run, time jumps to the next timer.
Rule 2: nothing comes from outside: no sockets, and no threads but those that stand still while the loop runs
        (`threads.py`). So the same seed gives the same order of events, and timers of one moment run in the order in
        which they were set.
Rule 3: when nothing can run and no timer is set, nothing will ever happen again: that is a `Deadlock`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, NoReturn, TypeVar

from ottla.sim.clock import SimClock
from ottla.sim.threads import HasWorkers

T = TypeVar("T")

_DONE_MAX = 64
"""Tasks that are done and still kept, besides as many as are not done."""


class Deadlock(RuntimeError):
    """Some task waits for what can never come."""


class SimHandle:
    """As much of `asyncio.TimerHandle` as anybody uses: most of what a run costs goes through these."""

    __slots__ = ("_args", "_at", "_callback", "context", "is_cancelled")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context, at: float) -> None:
        self._callback = callback
        self._args = args
        self.context = context
        self._at = at
        self.is_cancelled = False

    def __repr__(self) -> str:
        return f"SimHandle({self._callback!r}, at {self._at:.6f}{', cancelled' if self.is_cancelled else ''})"

    def cancel(self) -> None:
        self.is_cancelled = True
        self._args = ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self._at

    def run(self) -> None:
        self.context.run(self._callback, *self._args)


class SimLoop(HasWorkers, asyncio.BaseEventLoop):
    """The loop of one simulated run, with the one source of chance that code under simulation may use."""

    def __init__(self, clock: SimClock, random: Random) -> None:
        HasWorkers.__init__(self)
        asyncio.BaseEventLoop.__init__(self)
        self.clock = clock
        self.random = random
        self._soon: deque[SimHandle] = deque()
        self._timers: list[tuple[float, int, SimHandle]] = []
        """A heap. The number is that of the timer: of two at one moment the one that was set first comes first."""
        self._timers_set = 0
        self._is_frozen: Callable[[Context], bool] | None = None
        self._held: list[SimHandle] = []
        """What would have run in frozen contexts."""
        self._tasks: list[asyncio.Task[Any]] = []  # In the order of birth: a set would have none.
        self._tasks_max = _DONE_MAX

    # Time.

    def time(self) -> float:
        return self.clock.seconds

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        handle = SimHandle(callback, args, copy_context() if context is None else context, self.clock.seconds)
        self._soon.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        """From a worker: the loop stands still meanwhile."""
        return self.call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        handle = SimHandle(callback, args, copy_context() if context is None else context, when)
        self._timers_set += 1
        heappush(self._timers, (when, self._timers_set, handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        return self.call_at(self.clock.seconds + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """What asyncio's loop calls again and again."""
        soon, timers, clock = self._soon, self._timers, self.clock
        while timers and timers[0][2].is_cancelled:
            heappop(timers)
        if not soon:
            if not timers:
                raise Deadlock("no task is runnable and no timer is set")
            clock.seconds = max(clock.seconds, timers[0][0])
        now = clock.seconds
        while timers and timers[0][0] <= now:
            soon.append(heappop(timers)[2])
        for _ in range(len(soon)):
            handle = soon.popleft()
            if self._is_frozen is not None and self._is_frozen(handle.context):
                self._held.append(handle)
            elif not handle.is_cancelled:
                try:
                    handle.run()
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self.call_exception_handler({"message": f"Exception in {handle}", "exception": error})

    def cancel_timers(self, belongs: Callable[[Context], bool]) -> None:
        """Those that were set in certain contexts: their process is gone."""
        self._timers = [one for one in self._timers if not (one[2].is_cancelled or belongs(one[2].context))]
        heapify(self._timers)

    def freeze(self, belongs: Callable[[Context], bool]) -> None:
        """From now on nothing runs in certain contexts, as after SIGSTOP. What was due meanwhile runs after `thaw`."""
        self._is_frozen = belongs

    def thaw(self) -> None:
        self._is_frozen = None
        self._soon.extendleft(reversed(self._held))
        self._held.clear()

    # Tasks.

    def run_in_executor(self, *_: object) -> NoReturn:
        raise RuntimeError("a thread under simulation would make the order of events random; use Disk.in_thread")

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_max:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._tasks_max = 2 * len(self._tasks) + _DONE_MAX
        return task

    def cancel_unfinished(self) -> None:
        """Cancel what still runs, oldest first, and let it clean up."""
        while tasks := [task for task in self._tasks if not task.done()]:
            self._tasks = tasks
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def _asyncgen_finalizer_hook(self, _agen: Any) -> None:
        """Nothing is done for a generator that nobody goes on with: when it is collected is not the seed's to say."""

    def _process_events(self, event_list: Any) -> NoReturn:
        raise NotImplementedError("there is nothing to be heard of from outside")


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
