"""The clusters that Ottla's own client is tested against, each as a context that gives its bootstrap address."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from nodes.ottla_node import running_node

from ottla.client.client import Client
from peers.broker import running_broker
from peers.jars import fetch_jars

T = TypeVar("T")

GIVEN = "OTTLA_TEST_BOOTSTRAP"
"""Set to HOST:PORT to test against a cluster that runs already."""


@contextmanager
def kafka(home: Path) -> Iterator[str]:
    with running_broker(fetch_jars(), home) as broker:
        yield broker.bootstrap


@contextmanager
def given(_: Path) -> Iterator[str]:
    yield os.environ[GIVEN]


@contextmanager
def ottla(home: Path) -> Iterator[str]:
    with running_node(home) as node:
        yield node.bootstrap


CLUSTERS: dict[str, Callable[[Path], AbstractContextManager[str]]] = (
    {"given": given} if GIVEN in os.environ else {"kafka": kafka, "ottla": ottla}
)


def fresh(name: str) -> str:
    """A topic's name that nobody used before, on a cluster that others may use too."""
    return f"{name}-{uuid4().hex[:10]}"


def with_client(bootstrap: str, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    async def main() -> T:
        async with Client(bootstrap, api_timeout_ms=20_000) as client:
            return await work(client)

    return asyncio.run(main())
