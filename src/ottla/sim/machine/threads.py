"""Work in threads under simulation, one step at a time as the seed decides.

The code under test runs blocking work in a thread. Here it runs in a real thread that pauses before a disk step until
it is resumed; meanwhile the loop continues.

Rule 1: of the loop and all workers one runs at a time, so a seed gives one order of events.
Rule 2: the loop never waits for a paused worker: if it needs a mutex of the worker, it resumes the worker.
Rule 3: a worker outlives the task that awaits it, as a thread does. It ends with the run or the machine.
"""

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from ottla.sim.machine.faults import PowerLoss

_running = threading.local()


def current_worker() -> "WorkerThread | None":
    """The worker of this thread; None on the loop."""
    found: WorkerThread | None = getattr(_running, "worker", None)
    return found


class WorkerThread:
    def __init__(self, work: Callable[[], Any]) -> None:
        self.is_done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._work = work
        self._may_run = threading.Semaphore(0)
        self._stands_still = threading.Semaphore(0)
        self._abandoned = False
        # Callbacks to the loop belong to the process of the worker.
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), daemon=True)
        self._started = False

    def resume(self) -> None:
        """Run until it pauses or is done."""
        if not self._started:
            self._started = True
            self._thread.start()
        self._may_run.release()
        self._stands_still.acquire()

    def pause(self) -> None:
        """Pause until resumed. Called by the worker itself."""
        self._stands_still.release()
        self._may_run.acquire()
        if self._abandoned:
            raise PowerLoss("the run is over")

    def abandon(self) -> None:
        """The run is over: end the thread without another step."""
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
        self._holder: WorkerThread | None = None

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
    """Run work in a worker that is resumed at intervals of `rest_s`."""
    loop = asyncio.get_running_loop()
    worker, done = WorkerThread(work), loop.create_future()
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
        self.workers: dict[WorkerThread, None] = {}

    def abandon_workers(self) -> None:
        for worker in list(self.workers):
            worker.abandon()
        self.workers.clear()
