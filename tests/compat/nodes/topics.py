"""Topics that no other test uses, on whatever server."""

import re
from collections.abc import Iterator
from typing import Protocol

from peers.client import Client

KEEPING = {"log.retention.ms": "-1"}
"""Tests write records with fixed timestamps, of years ago: retention would take them away at its first chance."""

QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
}
"""Let a test have its own group hurry; without them every change of members takes some five seconds."""


class Server(Protocol):
    """What a client needs to know of either."""

    @property
    def bootstrap(self) -> str: ...


class Topics:
    """Makes topics with names that no other test uses."""

    def __init__(self, test: str, numbers: Iterator[str]) -> None:
        self._stem = re.sub(r"[^a-zA-Z0-9]+", "-", test).strip("-")[:80]
        self._numbers = numbers

    def name(self) -> str:
        return f"{self._stem}-{next(self._numbers)}"

    def create(self, server: Server, partitions: int = 1, **settings: str) -> str:
        """Settings are given with underscores: `max_message_bytes="1000"`."""
        name = self.name()
        given = {key.replace("_", "."): value for key, value in settings.items()}
        Client(server.bootstrap).create_topics({name: given}, {name: partitions})
        return name
