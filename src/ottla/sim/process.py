"""A process in a simulated machine: the tasks that belong to it, so that it can be killed.

Rule 1: a task belongs to the process in whose context it was made; so do the tasks that it makes.
Rule 2: a killed process gets no further. Its disk and its network are gone before its tasks are cancelled, so that code
        that cleans up can do nothing.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

T = TypeVar("T")
_CURRENT: ContextVar["Process | None"] = ContextVar("_CURRENT", default=None)


class Process:
    def __init__(self) -> None:
        self.alive = True
        self.context = copy_context()
        self.context.run(_CURRENT.set, self)
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        return asyncio.get_running_loop().create_task(work, context=self.context.copy())

    def kill(self) -> None:
        self.alive = False
        for task in list(self._tasks):
            task.cancel()

    def adopt(self, task: "asyncio.Task[Any]") -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))


def make_task(loop: asyncio.AbstractEventLoop, work: Any, context: Context | None = None) -> "asyncio.Task[Any]":
    """A task factory: `loop.set_task_factory(make_task)`."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
    process = _CURRENT.get() if context is None else context.get(_CURRENT)
    if process is not None:
        process.adopt(task)
    return task
