"""From a request to its handler: each is typed by its declaration, and served where Kafka serves it."""

import inspect
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from broker_connection_samples import new_connection

from ottla.broker.handlers.api_versions import api_versions
from ottla.broker.network import dispatch
from ottla.broker.network.dispatch import ROUTES, Call, Hangup, ListenerRole, answer, handler_of, is_served
from ottla.core.security.principals import ANONYMOUS
from ottla.wire.api import ApiKey, request_class
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.frame import decode_response

HEARTBEAT_VERSION = 4
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize("api_key", ROUTES, ids=lambda key: key.name)
def test_every_handler_takes_the_request_of_its_api(api_key: ApiKey) -> None:
    handler = handler_of(api_key)
    request, call = inspect.signature(handler).parameters
    hints = get_type_hints(handler)
    assert hints[request] is request_class(api_key)
    assert hints[call] is Call


@pytest.mark.parametrize(
    ("api_key", "role", "expected"),
    [
        (ApiKey.PRODUCE, "broker", True),
        (ApiKey.PRODUCE, "controller", False),
        (ApiKey.CREATE_TOPICS, "controller", True),
        (ApiKey.VOTE, "broker", False),
    ],
)
def test_a_listener_serves_the_requests_of_its_role(api_key: ApiKey, role: ListenerRole, expected: bool) -> None:
    assert is_served(api_key, role) is expected


def call_of(api_key: ApiKey, role: ListenerRole, version: int) -> Call:
    connection, _ = new_connection()
    connection.role = role
    return Call(connection.node, connection, api_key, version, 7, "c")


def test_a_request_to_the_wrong_listener_ends_the_connection_with_a_reason() -> None:
    ended = answer(HEARTBEAT, call_of(ApiKey.HEARTBEAT, "controller", HEARTBEAT_VERSION))
    assert isinstance(ended, Hangup)
    assert ended.reason == "HEARTBEAT is not served by a controller listener (PLAINTEXT)"


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_clients_are_told_what_their_listener_serves(role: ListenerRole) -> None:
    node: Any = SimpleNamespace(
        metadata=SimpleNamespace(end_offset=1, image=SimpleNamespace(features={})),
        raft_log=SimpleNamespace(kraft_version=1),
    )
    call = call_of(ApiKey.API_VERSIONS, role, 0)
    call.node = node
    told = {ApiKey(one.api_key) for one in api_versions(ApiVersionsRequest(), call).api_keys}
    assert told == {key for key in ROUTES if is_served(key, role)}
    assert (ApiKey.PRODUCE in told) is (role == "broker")


def test_an_answer_says_how_long_its_client_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def held_back(_request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
        assert call.principal is ANONYMOUS
        call.throttle_ms = 40
        return HeartbeatResponse(error_code=0)

    monkeypatch.setattr(dispatch, "handler_of", lambda _key: held_back)
    parts: Any = answer(HEARTBEAT, call_of(ApiKey.HEARTBEAT, "broker", HEARTBEAT_VERSION))
    _, response = decode_response(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, b"".join(parts)[4:])
    assert response.throttle_time_ms == 40
