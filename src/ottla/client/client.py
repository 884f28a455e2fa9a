"""A client of one cluster: the connections and the metadata that its producers, consumers and admin share.

async with Client("127.0.0.1:9092") as client:
    await Admin(client).create_topics([NewTopic("orders", partitions=3)])
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ottla.client.brokers import MAIN, Brokers, Channel
from ottla.client.core.cluster import Cluster
from ottla.client.core.errors import Misused
from ottla.client.metadata import Metadata
from ottla.rpc.addresses import parse_bootstrap
from ottla.rpc.backoff import Backoff
from ottla.rpc.connection import BrokerConnection
from ottla.rpc.errors import ClientError
from ottla.rpc.ports import Ports, machine_ports

T = TypeVar("T")
RETRY: Final = Backoff(first_ms=100, max_ms=1_000)


class Client:
    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "ottla",
        request_timeout_ms: int = 30_000,
        api_timeout_ms: int = 60_000,
        ports: Ports | None = None,
    ) -> None:
        """`request_timeout_ms` bounds one request; `api_timeout_ms` one call with all its attempts."""
        try:
            addresses = parse_bootstrap(bootstrap)
        except ValueError as error:
            raise Misused(f"bootstrap {error}") from None
        self.bootstrap = bootstrap
        self.ports = ports or machine_ports()
        self.request_timeout_ms = request_timeout_ms
        self.api_timeout_ms = api_timeout_ms
        self.cluster = Cluster()
        self.brokers = Brokers(self.ports, addresses, client_id, self.cluster)
        self.metadata = Metadata(self.ports, self.brokers, self.cluster, request_timeout_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.brokers.close()

    async def call_any(self, request: object) -> tuple[BrokerConnection, Any]:
        """Send a request to any broker; returns the connection used and the response."""
        connection = await self.brokers.any()
        return connection, await connection.call(request, timeout_ms=self.request_timeout_ms)

    async def call_node(
        self, node_id: int, request: object, *, channel: Channel = MAIN, at_most: int | None = None
    ) -> tuple[BrokerConnection, Any]:
        """Send a request to one broker."""
        connection = await self.brokers.node(node_id, channel)
        return connection, await connection.call(request, timeout_ms=self.request_timeout_ms, at_most=at_most)

    async def persist(self, attempt: Callable[[], Awaitable[T]], *, retry: Backoff = RETRY) -> T:
        """Repeat `attempt` until it succeeds, fails permanently, or `api_timeout_ms` is over; then raises the last
        error."""
        deadline_ms = self.ports.clock.monotonic_ms() + self.api_timeout_ms
        failures = 0
        while True:
            try:
                return await attempt()
            except ClientError as error:
                failures += 1
                wait_ms = retry.wait_ms(failures, self.ports.random)
                if not error.retriable or self.ports.clock.monotonic_ms() + wait_ms > deadline_ms:
                    raise
            await asyncio.sleep(wait_ms / 1000)
