"""Waiting in line."""

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Turns:
    """Lets what has to wait go on in the order in which it came."""

    taken: int = 0
    """Who waits or is being served, from when it came: its task may not have begun yet."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
