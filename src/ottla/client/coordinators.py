"""Questions that only one broker answers: the coordinator of a group or of a transactional id; or that each answers.

Rule 1: every key has an outcome of its own, an answer or a `ClientError`.
Rule 2: a coordinator that has moved or is not ready is looked up and asked again until the client's `api_timeout_ms`.
Rule 3: a change is not asked for again when nobody knows whether it was done.
Rule 4: who asks the same coordinator over and over (`OneCoordinator`) looks it up once, until it says that it is none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from enum import IntEnum
from typing import Any, Final, TypeVar

from ottla.client.client import Client
from ottla.client.connection import Connection
from ottla.client.core.addresses import Address
from ottla.client.core.backoff import Backoff
from ottla.client.core.cluster import Broker
from ottla.client.core.errors import ClientError, Declined, refusal_of
from ottla.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.errors import Error

A = TypeVar("A")
Ask = Callable[[int, list[str]], Awaitable[dict[str, A | ClientError]]]
FINDS_MANY: Final = 4  # First version of FindCoordinator that takes several keys.
_SOON: Final = Backoff(first_ms=20, max_ms=1_000)  # Markers of a transaction are there in a moment.
_NOT_THERE: Final = (Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)


class CoordinatorType(IntEnum):
    """What is coordinated; the number is FindCoordinator's."""

    GROUP = 0
    TRANSACTION = 1

    def subject(self, key: str) -> str:
        """What errors call it."""
        return f"{'group' if self is CoordinatorType.GROUP else 'transactional id'} {key}"


async def ask_coordinators(
    client: Client, kind: CoordinatorType, keys: Iterable[str], ask: Ask[A], *, changes: bool = False
) -> dict[str, A | ClientError]:
    """Ask each coordinator for all of its keys. `ask` gets a node and keys, and returns an outcome for each."""
    wanted = list(dict.fromkeys(keys))
    settled: dict[str, A | ClientError] = {}
    failing: dict[str, ClientError] = {}  # Those that asking again may mend.

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
    """The coordinator of one key, for whoever asks it over and over."""

    def __init__(self, client: Client, kind: CoordinatorType, key: str) -> None:
        self.subject = kind.subject(key)
        self._client, self._kind, self._key = client, kind, key
        self._node: int | None = None

    async def call(
        self, request: object, code_of: Callable[[Any], int], *, at_most: int | None = None
    ) -> tuple[Connection, Any]:
        """The answer, asked for until `api_timeout_ms`; `code_of` finds the error in it, which is raised.

        For requests that may be sent again whatever has become of the first.
        """
        return await self._client.persist(lambda: self.call_once(request, code_of, at_most=at_most), retry=_SOON)

    async def call_once(
        self, request: object, code_of: Callable[[Any], int], *, at_most: int | None = None
    ) -> tuple[Connection, Any]:
        """The answer to one attempt."""
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
    """The node that coordinates each key, asked for once."""
    connection = await client.brokers.any()
    batches = [keys] if connection.version_for(FindCoordinatorRequest) >= FINDS_MANY else [[key] for key in keys]
    found: dict[str, int | ClientError] = {}
    for batch in batches:
        found |= await _find(client, connection, kind, batch)
    return found


async def _find(
    client: Client, connection: Connection, kind: CoordinatorType, keys: list[str]
) -> dict[str, int | ClientError]:
    many = connection.version_for(FindCoordinatorRequest) >= FINDS_MANY
    request = FindCoordinatorRequest(key="" if many else keys[0], key_type=kind, coordinator_keys=keys if many else [])
    answer = await connection.call(request, timeout_ms=client.request_timeout_ms)
    assert isinstance(answer, FindCoordinatorResponse)
    told = answer.coordinators
    if not many:
        told = [
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
    for one in told:
        refusal = refusal_of(one.error_code, connection.address, kind.subject(one.key), one.error_message)
        if refusal is not None:
            found[one.key] = refusal
            continue
        found[one.key] = one.node_id
        client.cluster.brokers.setdefault(one.node_id, Broker(one.node_id, Address(one.host, one.port), None))
    return found


async def ask_every_broker(client: Client, ask: Callable[[int], Awaitable[A]]) -> dict[int, A | ClientError]:
    """Ask all brokers of the cluster, since each knows a part."""
    await client.persist(client.metadata.all_topics)  # Names the brokers.

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
