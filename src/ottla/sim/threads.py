"""Work in threads under simulation: done at once, or in steps that the event loop's own work comes between.

Rule 1: one thing runs at a time. A job has a thread of the machine's own, but that runs only while the loop waits for
        it, so the order is the seed's all the same.
Rule 2: a job may pause before any call of the disk. What it finds afterwards may have changed.
Rule 3: who wants a mutex that a paused job holds lets the job go on until it is free.
"""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class SteppedJob(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._result: T
        self._error: BaseException | None = None
        self.is_done = False
        self.is_rushed = False
        """It does not pause any more."""
        self.rest_s = 0.0
        """How long its last pause is to be."""
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        self.is_done = True
        self._back.release()

    @property
    def ident(self) -> int:
        return self._thread.ident or 0

    def step(self) -> bool:
        """Let it run until it pauses or is over; whether it is over."""
        if not self.is_done:
            self._go.release()
            self._back.acquire()
        if self.is_done:
            self._thread.join()
        return self.is_done

    def pause(self, rest_s: float) -> None:
        """Called in its own thread."""
        self.rest_s = rest_s
        self._back.release()
        self._go.acquire()

    def finish(self) -> None:
        self.is_rushed = True
        while not self.step():
            pass

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result


class Jobs:
    """Those of one disk, by thread."""

    def __init__(self) -> None:
        self._by_thread: dict[int, SteppedJob[object]] = {}

    def begin(self, work: Callable[[], T]) -> SteppedJob[T]:
        job = SteppedJob(work)
        self._by_thread[job.ident] = job  # type: ignore[assignment]
        return job

    def end(self, job: SteppedJob[T]) -> None:
        self._by_thread.pop(job.ident, None)

    @property
    def current(self) -> "SteppedJob[object] | None":
        """The one whose thread this is; None on the loop."""
        return self._by_thread.get(threading.get_ident()) if self._by_thread else None


class SimMutex:
    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._holder: SteppedJob[object] | None = None

    def __enter__(self) -> None:
        mine = self._jobs.current
        while self._holder is not None and self._holder is not mine:
            self._holder.is_rushed = True
            self._holder.step()
        self._holder = mine

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.is_rushed = False
