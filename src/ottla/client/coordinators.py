"""Requests to the coordinator of a group or of a transactional id, and requests to every broker.

Rule 1: every key has its own result, an answer or a `ClientError`.
Rule 2: if a coordinator has moved or is not ready, it is looked up and asked again until the client's `api_timeout_ms`.
Rule 3: a change is not repeated when its outcome is unknown.
Rule 4: `OneCoordinator` serves repeated requests to the same coordinator. It looks it up once, until that broker says
        that it is not the coordinator.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from enum import IntEnum
from typing import Any, Final, TypeVar

from ottla.client.client import Client
from ottla.client.core.cluster import Broker
from ottla.rpc.addresses import Address
from ottla.rpc.backoff import Backoff
from ottla.rpc.connection import BrokerConnection
from ottla.rpc.errors import ClientError, Declined, refusal_of
from ottla.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.errors import Error

A = TypeVar("A")
Ask = Callable[[int, list[str]], Awaitable[dict[str, A | ClientError]]]
FINDS_MANY: Final = 4  # First version of FindCoordinator that takes several keys.
_SOON: Final = Backoff(first_ms=20, max_ms=1_000)  # The markers of a transaction are written within moments.
_NOT_THERE: Final = (Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)


class CoordinatorType(IntEnum):
    """The kind of coordinator; the number is FindCoordinator's."""

    GROUP = 0
    TRANSACTION = 1

    def subject(self, key: str) -> str:
        """The key as error messages name it."""
        return f"{'group' if self is CoordinatorType.GROUP else 'transactional id'} {key}"


async def ask_coordinators(
    client: Client, kind: CoordinatorType, keys: Iterable[str], ask: Ask[A], *, changes: bool = False
) -> dict[str, A | ClientError]:
    """Ask each coordinator for all of its keys. `ask` gets a node and keys, and returns a result for each."""
    wanted = list(dict.fromkeys(keys))
    settled: dict[str, A | ClientError] = {}
    failing: dict[str, ClientError] = {}  # Errors that a retry may resolve.

    async def attempt() -> None:
        failing.clear()
        left = [key for key in wanted if key not in settled]
        by_node: dict[int, list[str]] = {}
        for key, node in (await find_coordinators(client, kind, left)).items():
            if isinstance(node, int):
                by_node.setdefault(node, []).append(key)
            else:
                (failing if node.retriable else settled)[key] = node
        for outcomes in await asyncio.gather(*(_asked(ask, node, each) for node, each in by_node.items())):
            for key, outcome in outcomes.items():
                if isinstance(outcome, ClientError) and outcome.retriable and not (changes and outcome.unknown_outcome):
                    failing[key] = outcome
                else:
                    settled[key] = outcome
        if failing:
            raise next(iter(failing.values()))

    try:
        await client.persist(attempt)
    except ClientError as error:
        for key in wanted:
            settled.setdefault(key, failing.get(key, error))
    return {key: settled[key] for key in wanted}


class OneCoordinator:
    """The coordinator of one key, for repeated requests."""

    def __init__(self, client: Client, kind: CoordinatorType, key: str) -> None:
        self.subject = kind.subject(key)
        self._client, self._kind, self._key = client, kind, key
        self._node: int | None = None

    async def call(
        self, request: object, code_of: Callable[[Any], int], *, at_most: int | None = None
    ) -> tuple[BrokerConnection, Any]:
        """Send the request until it succeeds or `api_timeout_ms` is over; `code_of` finds the error code in the
        response, which is raised.

        Only for requests that may be repeated whatever the outcome of the first.
        """
        return await self._client.persist(lambda: self.call_once(request, code_of, at_most=at_most), retry=_SOON)

    async def call_once(
        self, request: object, code_of: Callable[[Any], int], *, at_most: int | None = None
    ) -> tuple[BrokerConnection, Any]:
        """Send the request once."""
        if self._node is None:
            found = (await find_coordinators(self._client, self._kind, [self._key]))[self._key]
            if isinstance(found, ClientError):
                raise found
            self._node = found
        try:
            connection, answer = await self._client.call_node(self._node, request, at_most=at_most)
            text = getattr(answer, "error_message", None)
            refusal = refusal_of(code_of(answer), connection.address, self.subject, text)
            if refusal is not None:
                raise refusal
        except ClientError as error:
            if not isinstance(error, Declined) or error.error in _NOT_THERE:
                self._node = None
            raise
        return connection, answer


async def find_coordinators(client: Client, kind: CoordinatorType, keys: list[str]) -> dict[str, int | ClientError]:
    """The node that coordinates each key; asked once."""
    connection = await client.brokers.any()
    batches = [keys] if connection.version_for(FindCoordinatorRequest) >= FINDS_MANY else [[key] for key in keys]
    found: dict[str, int | ClientError] = {}
    for batch in batches:
        found |= await _find(client, connection, kind, batch)
    return found


async def _find(
    client: Client, connection: BrokerConnection, kind: CoordinatorType, keys: list[str]
) -> dict[str, int | ClientError]:
    many = connection.version_for(FindCoordinatorRequest) >= FINDS_MANY
    request = FindCoordinatorRequest(key="" if many else keys[0], key_type=kind, coordinator_keys=keys if many else [])
    answer = await connection.call(request, timeout_ms=client.request_timeout_ms)
    assert isinstance(answer, FindCoordinatorResponse)
    coordinators = answer.coordinators
    if not many:
        coordinators = [
            Coordinator(
                key=keys[0],
                node_id=answer.node_id,
                host=answer.host,
                port=answer.port,
                error_code=answer.error_code,
                error_message=answer.error_message,
            )
        ]
    found: dict[str, int | ClientError] = {}
    for one in coordinators:
        refusal = refusal_of(one.error_code, connection.address, kind.subject(one.key), one.error_message)
        if refusal is not None:
            found[one.key] = refusal
            continue
        found[one.key] = one.node_id
        client.cluster.brokers.setdefault(one.node_id, Broker(one.node_id, Address(one.host, one.port), None))
    return found


async def ask_every_broker(client: Client, ask: Callable[[int], Awaitable[A]]) -> dict[int, A | ClientError]:
    """Ask all brokers of the cluster, because each knows only a part."""
    await client.persist(client.metadata.all_topics)  # Fetches the list of brokers.

    async def one(node: int) -> A | ClientError:
        try:
            return await client.persist(lambda: ask(node))
        except ClientError as error:
            return error

    nodes = sorted(client.cluster.brokers)
    return dict(zip(nodes, await asyncio.gather(*map(one, nodes)), strict=True))


async def _asked(ask: Ask[A], node: int, keys: list[str]) -> dict[str, A | ClientError]:
    try:
        return await ask(node, keys)
    except ClientError as error:
        return dict.fromkeys(keys, error)
