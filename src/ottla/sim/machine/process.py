"""A process in a simulated machine: the tasks that belong to it, so that it can be killed.

Rule 1: a task belongs to the process in whose context it was created; so do the tasks it creates.
Rule 2: a killed process does nothing more. Its disk and network are gone before its tasks are cancelled, so that
        clean-up code has no effect. Its timers never fire, and it starts nothing.
Rule 3: a frozen process does nothing until it is resumed, and then everything that was due. One at a time is frozen.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from ottla.sim.machine.loop import SimLoop

T = TypeVar("T")
_CURRENT: ContextVar["Process | None"] = ContextVar("_CURRENT", default=None)
_DONE_MAX = 64


class Process:
    def __init__(self) -> None:
        self.alive = True
        self.context = copy_context()
        self.context.run(_CURRENT.set, self)
        self._tasks: list[asyncio.Task[Any]] = []
        self._tasks_max = _DONE_MAX
        self._is_frozen = False
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        # Its end may come in a thread, where no loop runs.
        self._loop = loop

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        return self._loop.create_task(work, context=self.context.copy())

    def freeze(self) -> None:
        """Pause the process, as SIGSTOP does. No effect on a killed process."""
        if self.alive:
            self._is_frozen = True
            self._loop.freeze(self._is_of)

    def thaw(self) -> None:
        """Resume the process, as SIGCONT does."""
        if self._is_frozen:
            self._is_frozen = False
            self._loop.thaw()

    def kill(self) -> None:
        self.alive = False
        self.thaw()
        # Before the tasks: their end must still be reported to those that await them.
        self._loop.cancel_timers(self._is_of)
        for task in self._tasks:
            task.cancel()

    def _is_of(self, context: Context) -> bool:
        return context.get(_CURRENT) is self

    def adopt(self, task: "asyncio.Task[Any]") -> None:
        if not self.alive:
            task.cancel()
        self._tasks.append(task)
        if len(self._tasks) > self._tasks_max:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._tasks_max = 2 * len(self._tasks) + _DONE_MAX


def make_task(loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None) -> "asyncio.Task[Any]":
    """A task factory: `loop.set_task_factory(make_task)`."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
    process = _CURRENT.get() if context is None else context.get(_CURRENT)
    if process is not None:
        process.adopt(task)
    return task
