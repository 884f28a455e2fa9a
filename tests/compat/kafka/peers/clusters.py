"""The clusters that Ottla's own client is tested against (the fixture `bootstrap`), and work with that client."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import uuid4

from ottla.client.client import Client

T = TypeVar("T")

GIVEN = "OTTLA_TEST_BOOTSTRAP"
"""Set to HOST:PORT to test against a cluster that runs already."""


CLUSTERS = ("given",) if GIVEN in os.environ else ("kafka", "ottla")


def fresh(name: str) -> str:
    """A topic's name that nobody used before, on a cluster that others may use too."""
    return f"{name}-{uuid4().hex[:10]}"


def with_client(bootstrap: str, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    async def main() -> T:
        async with Client(bootstrap, api_timeout_ms=20_000) as client:
            return await work(client)

    return asyncio.run(main())
