"""Work in threads under simulation: one step at a time, and when the seed says so.

The code under test hands blocking work to a thread and goes on with the loop. Here such work runs in a thread of its
own that stands still before a step of the disk until it is told to go on; meanwhile the loop does what comes next.

Rule 1: of the loop and all workers one runs at a time, so a seed still gives one order of events.
Rule 2: nobody waits for a worker that stands still: the loop, where it needs a mutex of the worker, has it go on.
Rule 3: a worker outlives the task that waits for it, as a thread does. The end of the run or of the machine ends it.
"""

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from ottla.sim.faults import PowerLoss

_running = threading.local()


def current_worker() -> "Worker | None":
    """The worker whose thread this is; None on the loop."""
    found: Worker | None = getattr(_running, "worker", None)
    return found


class Worker:
    def __init__(self, work: Callable[[], Any]) -> None:
        self.is_done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._work = work
        self._may_run = threading.Semaphore(0)
        self._stands_still = threading.Semaphore(0)
        self._abandoned = False
        # What it hands to the loop belongs to the process that it works for.
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), daemon=True)
        self._started = False

    def resume(self) -> None:
        """Let it run until it stands still or is done."""
        if not self._started:
            self._started = True
            self._thread.start()
        self._may_run.release()
        self._stands_still.acquire()

    def pause(self) -> None:
        """Stand still until told to go on. Called by the worker itself."""
        self._stands_still.release()
        self._may_run.acquire()
        if self._abandoned:
            raise PowerLoss("the run is over")

    def abandon(self) -> None:
        """The run is over: the thread ends without another step."""
        self._abandoned = True
        if self._started and not self.is_done:
            self.resume()

    def _run(self) -> None:
        _running.worker = self
        self._may_run.acquire()
        try:
            if not self._abandoned:
                self.result = self._work()
        except BaseException as error:
            self.error = error
        self.is_done = True
        self._stands_still.release()


class SimMutex:
    """Mutual exclusion between the loop and workers."""

    def __init__(self) -> None:
        self._is_held = False
        self._holder: Worker | None = None

    def __enter__(self) -> None:
        me = current_worker()
        while self._is_held:
            if me is not None:
                me.pause()
            elif self._holder is None or self._holder.is_done:
                raise RuntimeError("the loop waits for itself")
            else:
                self._holder.resume()
        self._is_held, self._holder = True, me

    def __exit__(self, *_: object) -> None:
        self._is_held, self._holder = False, None


async def in_steps(work: Callable[[], Any], rest_s: Callable[[], float]) -> Any:
    """Run work in a worker that is told to go on every now and then; `rest_s` says after how long."""
    loop = asyncio.get_running_loop()
    worker, done = Worker(work), loop.create_future()
    if isinstance(loop, HasWorkers):
        loop.workers[worker] = None

    def step() -> None:
        if not worker.is_done:
            worker.resume()
        if not worker.is_done:
            loop.call_later(rest_s(), step)
            return
        if isinstance(loop, HasWorkers):
            loop.workers.pop(worker, None)
        if done.done():
            return
        if worker.error is not None:
            done.set_exception(worker.error)
        else:
            done.set_result(worker.result)

    step()
    return await done


class HasWorkers:
    """A loop that ends the workers of its run."""

    def __init__(self) -> None:
        self.workers: dict[Worker, None] = {}

    def abandon_workers(self) -> None:
        for worker in list(self.workers):
            worker.abandon()
        self.workers.clear()
