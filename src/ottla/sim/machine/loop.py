"""An event loop with virtual time.

Rule 1: no waiting. When nothing can run, time jumps to the next timer.
Rule 2: nothing comes from outside: no sockets, and only threads that are stopped while the loop runs (`threads.py`). So
        a seed gives one order of events; timers of the same time run in the order in which they were set.
Rule 3: if nothing can run and no timer is set, the loop raises `Deadlock`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any, NoReturn, TypeVar

from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.threads import HasWorkers

T = TypeVar("T")

_DONE_MAX = 64
"""Done tasks that are kept, besides as many as are not done."""


class Deadlock(RuntimeError):
    """A task waits for an event that cannot happen."""


class SimHandle:
    """The part of `asyncio.TimerHandle` that is used; most of the cost of a run goes through these."""

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
    """The loop of one simulated run, with its only source of randomness."""

    def __init__(self, clock: SimClock, random: Random) -> None:
        HasWorkers.__init__(self)
        asyncio.BaseEventLoop.__init__(self)
        self.clock = clock
        self.random = random
        self._soon: deque[SimHandle] = deque()
        self._timers: list[tuple[float, int, SimHandle]] = []
        """A heap. The number orders timers of the same time."""
        self._timers_set = 0
        self._is_frozen: Callable[[Context], bool] | None = None
        self._held: list[SimHandle] = []
        """Callbacks due in frozen contexts."""
        self._tasks: list[asyncio.Task[Any]] = []  # Ordered by creation, which a set would not be.
        self._tasks_max = _DONE_MAX

    # Time.

    def time(self) -> float:
        return self.clock.seconds

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        handle = SimHandle(callback, args, copy_context() if context is None else context, self.clock.seconds)
        self._soon.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        """Called by a worker: the loop is stopped meanwhile."""
        return self.call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        handle = SimHandle(callback, args, copy_context() if context is None else context, when)
        self._timers_set += 1
        heappush(self._timers, (when, self._timers_set, handle))
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: Context | None = None) -> Any:  # type: ignore[override]
        return self.call_at(self.clock.seconds + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Called repeatedly by asyncio's loop."""
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
        """Cancel the timers set in certain contexts, whose process is gone."""
        self._timers = [one for one in self._timers if not (one[2].is_cancelled or belongs(one[2].context))]
        heapify(self._timers)

    def freeze(self, belongs: Callable[[Context], bool]) -> None:
        """Run nothing in certain contexts any more, as after SIGSTOP. Due callbacks run after `thaw`."""
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
        """Cancel unfinished tasks, oldest first, and let them clean up."""
        while tasks := [task for task in self._tasks if not task.done()]:
            self._tasks = tasks
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def _asyncgen_finalizer_hook(self, _agen: Any) -> None:
        """Nothing: when a generator is collected does not depend on the seed."""

    def _process_events(self, event_list: Any) -> NoReturn:
        raise NotImplementedError("there is nothing to be heard of from outside")


def run(main: Callable[[SimLoop], Coroutine[Any, Any, T]], seed: int, clock: SimClock | None = None) -> T:
    """Run `main` to its end in virtual time; all randomness comes from the seed."""
    loop = SimLoop(clock or SimClock(), Random(seed))
    try:
        return loop.run_until_complete(main(loop))
    finally:
        try:
            loop.cancel_unfinished()
        finally:
            loop.abandon_workers()
            loop.close()
