"""From a request to its response: one table of handlers, and the one place that catches unexpected exceptions.

Rule 1: a handler is a function of the decoded request and the `Call`. It returns the response, or a future of it or of
        a function that gives it, or it is a coroutine. `None` means that there is no answer.
Rule 2: what a handler does before it returns, or before its coroutine waits for something, happens in the connection's
        order. A coroutine is begun at once, and many never wait.
Rule 3: a handler that may have much to do is a coroutine that spends its `Call.budget`; its answer is encoded in turns,
        too. Once it gave way, the connection takes no further request before this one is answered, so that its order
        holds all the same.
Rule 4: a listener has a role, and serves the requests that Kafka serves there (`listeners` of their declarations).
        Authorisation and quotas of requests belong here as well: `answer` knows the principal, and an answer gets
        `Call.throttle_ms` wherever it was computed.
"""

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ottla.broker.network.backlog import Budget
from ottla.broker.network.socket_writer import Part
from ottla.core.security.principals import Principal
from ottla.observe.trace import defect, warn
from ottla.wire.api import ApiKey, request_class
from ottla.wire.codec import Malformed, Unencodable
from ottla.wire.frame import decode_request_in_steps, encode_response, encode_response_in_steps
from ottla.wire.schema import Struct, message_of

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.node import Node

Handler = Callable[[Any, "Call"], Any]

ListenerRole = Literal["broker", "controller"]
"""What a listener is for: clients and brokers, or the quorum."""

ROUTES: dict[ApiKey, str] = {
    ApiKey.PRODUCE: "produce.produce",
    ApiKey.FETCH: "fetch.fetch",
    ApiKey.LIST_OFFSETS: "offsets.list_offsets",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offsets.offset_for_leader_epoch",
    ApiKey.DELETE_RECORDS: "offsets.delete_records",
    ApiKey.DESCRIBE_LOG_DIRS: "logs.describe_log_dirs",
    ApiKey.DESCRIBE_PRODUCERS: "logs.describe_producers",
    ApiKey.API_VERSIONS: "api_versions.api_versions",
    ApiKey.METADATA: "cluster.metadata",
    ApiKey.FIND_COORDINATOR: "coordinators.find_coordinator",
    ApiKey.JOIN_GROUP: "groups.join_group",
    ApiKey.SYNC_GROUP: "groups.sync_group",
    ApiKey.HEARTBEAT: "groups.heartbeat",
    ApiKey.LEAVE_GROUP: "groups.leave_group",
    ApiKey.LIST_GROUPS: "groups.list_groups",
    ApiKey.DESCRIBE_GROUPS: "groups.describe_groups",
    ApiKey.DELETE_GROUPS: "groups.delete_groups",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer_groups.consumer_group_heartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "consumer_groups.consumer_group_describe",
    ApiKey.OFFSET_COMMIT: "group_offsets.offset_commit",
    ApiKey.OFFSET_FETCH: "group_offsets.offset_fetch",
    ApiKey.OFFSET_DELETE: "group_offsets.offset_delete",
    ApiKey.TXN_OFFSET_COMMIT: "group_offsets.txn_offset_commit",
    ApiKey.DESCRIBE_CLUSTER: "cluster.describe_cluster",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "cluster.describe_topic_partitions",
    ApiKey.CREATE_TOPICS: "topics.create_topics",
    ApiKey.DELETE_TOPICS: "topics.delete_topics",
    ApiKey.CREATE_PARTITIONS: "topics.create_partitions",
    ApiKey.DESCRIBE_CONFIGS: "configs.describe_configs",
    ApiKey.ALTER_CONFIGS: "configs.alter_configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "configs.incremental_alter_configs",
    ApiKey.LIST_CONFIG_RESOURCES: "configs.list_config_resources",
    ApiKey.INIT_PRODUCER_ID: "producer_ids.init_producer_id",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions.add_partitions_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions.add_offsets_to_txn",
    ApiKey.END_TXN: "transactions.end_txn",
    ApiKey.WRITE_TXN_MARKERS: "transactions.write_txn_markers",
    ApiKey.DESCRIBE_TRANSACTIONS: "transactions.describe_transactions",
    ApiKey.LIST_TRANSACTIONS: "transactions.list_transactions",
    ApiKey.DESCRIBE_QUORUM: "quorum.describe_quorum",
    ApiKey.UPDATE_FEATURES: "quorum.update_features",
}
"""Module and function under `broker/handlers`; imported at first use, so that a node starts quickly."""


@dataclass(slots=True, eq=False)
class Call:
    """The context of a request."""

    node: "Node"
    connection: "Connection"
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    is_wide: bool = False
    """The request has very many elements, and its bytes stay unchanged until it is answered."""
    is_alone: bool = False
    """No other request of the connection is taken until this one is answered."""
    throttle_ms: int = 0
    """How long the client must wait before its next request; the response contains it."""
    _budget: Budget | None = None

    @property
    def listener(self) -> str:
        """The name of the listener that the request came in by."""
        return self.connection.listener

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    @property
    def budget(self) -> Budget:
        """The amount of work that the request may do in one turn."""
        if self._budget is None:
            self._budget = Budget(self.node.backlog)
        return self._budget

    @property
    def must_be_alone(self) -> bool:
        """Whether the connection must take no other request before this one is answered: it asked for that, or it
        paused, and requests after it could overtake it."""
        return self.is_alone or (self._budget is not None and self._budget.gave_way)


Frame = list[Part]
"""A whole response as consecutive parts."""


class Parked(Protocol):
    """A pending result that a request waits for. It has the part of a future's interface that a connection needs."""

    def add_done_callback(self, done: Callable[[Any], None], /) -> None: ...

    def cancel(self) -> Any: ...

    def cancelled(self) -> bool: ...

    def result(self) -> Any:
        """The response, or a function that returns it."""

    def __await__(self) -> Generator[Any, Any, Any]: ...


@dataclass(slots=True, eq=False)
class Hangup:
    """Returned instead of a response: close the connection."""

    reason: str | None = None
    """None: it was logged already."""


Answered = Coroutine[Any, Any, "Frame | Hangup | None"]
"""Results in a response, or None, when it is done."""
ELEMENTS_PER_STEP = 64
"""How many elements a codec processes between two pauses, up to a factor of two."""


def answer(request: Any, call: Call) -> "Frame | Hangup | Answered | Parked | None":
    """Call the handler of a request. Returns the response, or an object that results in it later; every exception
    becomes a response or closes the connection. When a Parked is done, `answer_late` makes its response."""
    role = call.connection.role
    if not is_served(call.api_key, role):
        return Hangup(f"{ApiKey(call.api_key).name} is not served by a {role} listener ({call.listener})")
    try:
        response = handler_of(call.api_key)(request, call)
        if isinstance(response, Struct):
            return encode_response(_throttled(response, call), call.version, call.correlation_id)
        if type(response) is CoroutineType:
            return _answered(response, call)
        parked: Parked | None = response
        return parked
    except Exception as error:
        return failed(call.api_key, call.version, call.connection, error)


def answer_late(response: Parked, call: Call) -> "Frame | Hangup | Answered":
    """The response to a parked request that is done."""
    try:
        result = response.result()
        if not isinstance(result, Struct):
            result = result()
            if type(result) is list:
                return result
            if type(result) is CoroutineType:
                return _answered(result, call)
        return encode_response(_throttled(result, call), call.version, call.correlation_id)
    except Exception as error:
        return failed(call.api_key, call.version, call.connection, error)


async def _answered(handling: Awaitable[Any], call: Call) -> Frame | Hangup | None:
    try:
        response = await handling
        if response is None:
            return None
        if not isinstance(response, Struct):
            response = response()
            if type(response) is list:
                return response
            if type(response) is CoroutineType:
                response = await response
        steps = encode_response_in_steps(_throttled(response, call), call.version, call.correlation_id)
        return await call.budget.run(steps, ELEMENTS_PER_STEP)
    except Exception as error:
        return failed(call.api_key, call.version, call.connection, error)


async def answer_wide(frame: memoryview, call: Call) -> Frame | Hangup | None:
    """Decode a request with very many elements in turns, and call its handler.

    `frame` must not change before it is answered. `call` gets the fields of the request's header.
    """
    try:
        request = await call.budget.run(decode_request_in_steps(frame), ELEMENTS_PER_STEP)
    except Malformed as malformed:
        return Hangup(str(malformed))
    call.api_key, call.version = request.api_key, request.version
    call.correlation_id, call.client_id = request.correlation_id, request.client_id
    call.is_wide = True
    result = answer(request.body, call)
    if result is None or isinstance(result, list | Hangup):
        return result
    return await result if type(result) is CoroutineType else await _answered(result, call)


def _throttled(response: Any, call: Call) -> Any:
    if call.throttle_ms and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = call.throttle_ms
    return response


def begin(work: "Coroutine[Any, Any, Any]", loop: AbstractEventLoop) -> "tuple[bool, Any]":
    """Run a coroutine until it waits: True and its result if it never does, else False and its task."""
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        return True, done.value
    return False, loop.create_task(_rest(work, waits_for))


@coroutine
def _rest(work: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    """Continue a coroutine that was started outside of a task."""
    while True:
        try:
            value = yield waits_for
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:
            # Not kept in a variable: it refers to this frame, and the cycle would wait for the garbage collector.
            try:
                waits_for = work.throw(error)
            except StopIteration as done:
                return done.value
            continue
        try:
            waits_for = work.send(value)
        except StopIteration as done:
            return done.value


def failed(api_key: int, version: int, connection: "Connection", error: Exception) -> Hangup:
    """Log an unexpected exception. No response can express it, so the connection is closed."""
    tell = warn if isinstance(error, Unencodable) else defect  # A response may be too large.
    tell("request.failed", api=ApiKey(api_key).name, version=version, peer=connection.peer, error=error)
    return Hangup()


def answer_unknown(call: Call, reason: str) -> Frame | Hangup:
    """ApiVersions in an unsupported version is answered in version 0, so that the client can choose another
    (KIP-511)."""
    if call.api_key != ApiKey.API_VERSIONS:
        return Hangup(reason)
    from ottla.broker.handlers.api_versions import unsupported_version

    return encode_response(unsupported_version(), 0, call.correlation_id)


@cache
def is_served(api_key: int, role: ListenerRole) -> bool:
    """Whether a listener of this role answers the request."""
    return api_key in ROUTES and role in message_of(request_class(api_key)).listeners


@cache
def handler_of(api_key: int) -> Handler:
    module, _, function = ROUTES[ApiKey(api_key)].partition(".")
    handler: Handler = getattr(import_module(f"ottla.broker.handlers.{module}"), function)
    return handler
