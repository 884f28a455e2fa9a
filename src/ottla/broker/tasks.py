"""Things done again and again."""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.observe.trace import warn
from ottla.wire.errors import Refused


async def every(interval_ms: int, what: str, work: Callable[[], Awaitable[object]]) -> None:
    """Do `work`, rest for the interval, for ever. A refusal is said and does not end it."""
    while True:
        await asyncio.sleep(interval_ms / 1000)
        try:
            await work()
        except Refused as refusal:
            warn("upkeep.failed", doing=what, reason=refusal.text)
