"""Keeps one connection's transactional Produce requests in order."""

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Fifo:
    """The first request to enter is the first to hold the lock."""

    entered: int = 0
    """Requests that wait or hold the lock. Counted on arrival, because their tasks may not have started yet."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
