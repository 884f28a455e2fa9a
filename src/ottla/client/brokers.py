"""Connections to the brokers of a cluster.

Rule 1: one connection per broker and channel, opened when first needed and shared by all callers. Requests that wait at
        the broker (fetches) have their own channel, because responses come in the order of requests.
Rule 2: a broker that could not be reached is not retried for a while, longer each time; callers wait for that.
Rule 3: any broker can answer for the cluster. Brokers named in metadata are tried before the bootstrap addresses, which
        remain in case all others have moved.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.core.cluster import Cluster
from ottla.rpc.addresses import Address
from ottla.rpc.backoff import Backoff
from ottla.rpc.connection import BrokerConnection, connect
from ottla.rpc.errors import ClientError, Disconnected, Unreachable
from ottla.rpc.ports import Ports

RECONNECT: Final = Backoff(first_ms=50, max_ms=1_000)
CONNECT_TIMEOUT_MS: Final = 10_000

Channel = str
MAIN: Final[Channel] = "main"


@dataclass(slots=True)
class Endpoint:
    """The state of one channel to one broker."""

    connection: BrokerConnection | None = None
    connecting: "asyncio.Task[BrokerConnection] | None" = None
    failures: int = 0
    not_before_ms: int = 0


class Brokers:
    """The connections of a client."""

    def __init__(self, ports: Ports, bootstrap: list[Address], client_id: str, cluster: Cluster) -> None:
        self._ports = ports
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._cluster = cluster
        self._endpoints: dict[tuple[Address, Channel], Endpoint] = {}
        self._closed = False

    async def node(self, node_id: int, channel: Channel = MAIN) -> BrokerConnection:
        """A connection to one broker of the cluster."""
        broker = self._cluster.brokers.get(node_id)
        if broker is None:
            raise Unreachable([self._bootstrap[0]], [f"the cluster knows no broker {node_id} at present"])
        return await self._connection(broker.address, channel)

    async def any(self) -> BrokerConnection:
        """A connection to any broker."""
        for (_, channel), endpoint in self._endpoints.items():
            if channel == MAIN and endpoint.connection is not None and endpoint.connection.usable:
                return endpoint.connection
        named = [broker.address for broker in self._cluster.brokers.values()]
        start = self._ports.random.randrange(len(named)) if named else 0
        candidates = list(dict.fromkeys([*named[start:], *named[:start], *self._bootstrap]))
        failures: list[ClientError] = []
        for address in candidates:
            try:
                return await self._connection(address, MAIN)
            except ClientError as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise Unreachable(
            candidates, [_reason(address, error) for address, error in zip(candidates, failures, strict=True)]
        )

    async def close(self) -> None:
        self._closed = True
        for endpoint in self._endpoints.values():
            if endpoint.connecting is not None:
                endpoint.connecting.cancel()
            if endpoint.connection is not None:
                endpoint.connection.close()
        self._endpoints.clear()
        await asyncio.sleep(0)  # Lets the transports close their sockets.

    async def _connection(self, address: Address, channel: Channel) -> BrokerConnection:
        if self._closed:
            raise Disconnected(address, "this client is closed")
        endpoint = self._endpoints.setdefault((address, channel), Endpoint())
        if endpoint.connection is not None and endpoint.connection.usable:
            return endpoint.connection
        if endpoint.connecting is None:
            endpoint.connecting = asyncio.create_task(self._connect(address, endpoint))
            endpoint.connecting.add_done_callback(_seen)
        # Shielded: a caller that gives up must not cancel the connection attempt of the others.
        return await asyncio.shield(endpoint.connecting)

    async def _connect(self, address: Address, endpoint: Endpoint) -> BrokerConnection:
        try:
            wait_ms = endpoint.not_before_ms - self._ports.clock.monotonic_ms()
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)
            endpoint.connection = await connect(
                self._ports.network, address, self._client_id, timeout_ms=CONNECT_TIMEOUT_MS
            )
            endpoint.failures = 0
            return endpoint.connection
        except ClientError:
            endpoint.failures += 1
            wait_ms = RECONNECT.wait_ms(endpoint.failures, self._ports.random)
            endpoint.not_before_ms = self._ports.clock.monotonic_ms() + wait_ms
            raise
        finally:
            endpoint.connecting = None


def _seen(task: "asyncio.Task[Any]") -> None:
    """Retrieve the exception, because all callers may be gone and asyncio would report it as never retrieved."""
    if not task.cancelled():
        task.exception()


def _reason(address: Address, error: ClientError) -> str:
    return error.what.removeprefix(f"broker {address}: ")
