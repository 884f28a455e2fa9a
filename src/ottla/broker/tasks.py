"""Things done again and again."""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.observe.trace import warn
from ottla.wire.errors import Refused

_REST_MS_MAX = 24 * 3_600_000  # What is due later than tomorrow is due never; timers take no more.


async def every(
    interval_ms: int, what: str, work: Callable[[], Awaitable[object]], first_after_ms: int | None = None
) -> None:
    """Do `work` at every interval, for ever. A refusal is said and does not end it."""
    rest_ms = interval_ms if first_after_ms is None else first_after_ms
    while True:
        await asyncio.sleep(min(rest_ms, _REST_MS_MAX) / 1000)
        rest_ms = interval_ms
        try:
            await work()
        except Refused as refusal:
            warn("upkeep.failed", doing=what, reason=refusal.text)
