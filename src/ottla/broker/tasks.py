"""Background work of a node: tasks that run once, and tasks that repeat.

Rule: an unexpected error is a defect. It is logged with its traceback, and a repeating task goes on: without retention
      the disk would fill.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ottla.observe.trace import defect, warn
from ottla.wire.errors import Refused

_REST_MS_MAX = 24 * 3_600_000  # Longer waits are cut to a day, because timers have a limit.


async def every(
    interval_ms: int, what: str, work: Callable[[], Awaitable[object]], first_after_ms: int | None = None
) -> None:
    """Run `work` at every interval, until cancelled."""
    rest_ms = interval_ms if first_after_ms is None else first_after_ms
    while True:
        await asyncio.sleep(min(rest_ms, _REST_MS_MAX) / 1000)
        rest_ms = interval_ms
        try:
            await work()
        except Refused as refusal:
            warn("upkeep.failed", doing=what, reason=refusal.text)
        except Exception as error:
            defect("upkeep.broken", error, doing=what)


class Tasks:
    """The background tasks of a node; they end with it."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        name = getattr(work, "__qualname__", type(work).__name__)
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._running.pop(task, None)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, Refused):
            warn("task.failed", doing=task.get_name(), reason=error.text)
        elif isinstance(error, Exception):
            defect("task.broken", error, doing=task.get_name())

    async def cancel(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
