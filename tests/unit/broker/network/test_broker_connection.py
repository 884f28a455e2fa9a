"""A connection and bytes that are no requests: it ends, once, with one line in the log."""

from errno import EMFILE
from struct import pack
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from broker_connection_samples import REQUEST_BYTES_MAX, Transport, arrive, new_connection

from ottla.broker.network.connection import Connection
from ottla.observe.trace import Event, recording

JOIN_GROUP = 11
API_VERSIONS = pack(">hhih", 18, 0, 1, -1)
FRAME = pack(">i", len(API_VERSIONS)) + API_VERSIONS


def ended(*pieces: bytes) -> list[Event]:
    """What the log says when these arrive, one by one, and the connection must have ended."""

    connection, transport = new_connection()
    with recording() as events:
        for piece in pieces:
            assert not transport.aborted
            arrive(connection, piece)
    assert transport.aborted
    return events


@pytest.mark.parametrize("size", [-1, -(2**31), REQUEST_BYTES_MAX + 1, 2**31 - 1])
@pytest.mark.parametrize("first", [1, 3, 4])
def test_size_that_cannot_be_is_refused_as_soon_as_it_is_known(size: int, first: int) -> None:
    """Also when it comes in pieces: otherwise the connection would gather bytes for a frame that it refuses anyway."""
    whole = pack(">i", size)
    [event] = ended(*(piece for piece in (whole[:first], whole[first:]) if piece))
    assert event.name == "connection.refused"
    assert str(size) in event.fields["reason"]
    assert str(REQUEST_BYTES_MAX) in event.fields["reason"]


def test_request_that_fails_is_told_once() -> None:
    header = pack(">hhih", JOIN_GROUP, 2, 1, -1)
    [event] = ended(pack(">i", len(header) + 20) + header + bytes(20))
    assert event.name == "request.failed"
    assert event.fields["api"] == "JOIN_GROUP"
    assert event.fields["peer"] == "10.0.0.9:1234"


def test_of_very_many_refusals_some_are_told_and_the_others_counted() -> None:
    connection, _ = new_connection()
    connections = connection.node.connections
    with recording() as events:
        for _ in range(8):
            assert connections.admit(Connection(connection.node, "PLAINTEXT"))
        for _ in range(1_000):
            assert not connections.admit(Connection(connection.node, "PLAINTEXT"))
        connections.close_silent(now_ms=1)
        connections.close_silent(now_ms=2)
    assert [event.name for event in events] == [*["connection.refused"] * 20, "connection.more_refused"]
    assert events[-1].fields["connections"] == 980


def test_connection_that_gets_no_descriptor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, _ = new_connection()
    monkeypatch.setattr(
        "ottla.broker.network.connection.writer_for", Mock(side_effect=OSError(EMFILE, "Too many open files"))
    )
    with recording() as events:
        other, transport = Connection(connection.node, "PLAINTEXT"), Transport()
        other.connection_made(transport)
    assert transport.aborted
    [event] = events
    assert "Too many open files" in event.fields["reason"]
    assert len(connection.node.connections) == 1


def test_half_a_frame_must_become_whole_in_time() -> None:
    connection, transport = new_connection()
    arrive(connection, pack(">i", 100) + b"half")
    connections = connection.node.connections
    with recording() as events:
        connections.close_silent(now_ms=60_000)
        assert not transport.aborted
        connections.close_silent(now_ms=60_001)
    assert transport.aborted
    assert [event.name for event in events] == ["connection.refused"]


def test_half_a_frame_is_timed_from_its_own_beginning() -> None:
    """A client that is never done sending has half a frame here at every moment, each time another one."""
    connection, transport = new_connection()
    clock = {"ms": 0}
    connection.node.clock.monotonic_ms = lambda: clock["ms"]  # type: ignore[method-assign]
    connection._receive = lambda _: None  # type: ignore[method-assign]
    arrive(connection, FRAME[:5])
    for clock["ms"] in range(10_000, 200_000, 10_000):
        arrive(connection, FRAME[5:] + FRAME[:5])
        connection.node.connections.close_silent(clock["ms"])
        assert not transport.aborted
    connection.node.connections.close_silent(clock["ms"] + 60_001)
    assert transport.aborted


def test_silent_connection_without_half_a_frame_is_closed_later_and_without_a_word() -> None:
    connection, transport = new_connection()
    with recording() as events:
        connection.node.connections.close_silent(now_ms=600_000)
        assert not transport.aborted
        connection.node.connections.close_silent(now_ms=600_001)
    assert transport.aborted
    assert events == []


@pytest.mark.parametrize("is_written", [True, False])
def test_answers_leave_when_what_they_tell_of_is_written_or_never(is_written: bool) -> None:
    """A client that was told of a commit which could not be written would lose it without knowing."""
    connection, transport = new_connection()
    asked = []

    class Held:
        def write_held(self) -> bool:
            asked.append(bytes(transport.sent))
            return is_written

    held: Any = Held()
    connection.node.send_round = SimpleNamespace(add=Connection.send_ready)  # type: ignore[assignment]
    request = pack(">ihhih", 10, 18, 99, 1, -1)  # ApiVersions in a version that nobody knows is answered at once.
    connection.hold(held)
    arrive(connection, request)
    assert asked == [b""]
    assert (bool(transport.sent), transport.aborted) == (is_written, not is_written)
    if is_written:
        arrive(connection, request)
        assert len(asked) == 1, "once is enough"


class LargeAnswers:
    """Shortcuts of a reader that is always given much."""

    takes_produce, takes_fetch = False, True
    answer = (b"head", bytes(1 << 16), b"tail")

    def take_fetch(self, _frame: memoryview) -> list[bytes]:
        return list(self.answer)


@pytest.mark.parametrize("requests", [1, 2])
def test_a_reader_that_does_not_take_its_answers_is_not_read_from_until_it_does(requests: int) -> None:
    """Whether it sends requests one by one or together: what it does not take lies in the broker's memory."""
    connection, transport = new_connection()
    shortcuts: Any = LargeAnswers()
    connection._shortcuts = shortcuts
    answer = b"".join(LargeAnswers.answer)
    arrive(connection, FRAME * requests)
    assert (bytes(transport.sent), transport.is_paused) == (answer * requests, False)
    transport.queued_bytes = 1 << 20
    arrive(connection, FRAME * requests)
    assert (bytes(transport.sent), transport.is_paused) == (answer * (requests + 1), True)
    transport.queued_bytes = 0
    connection.resume_writing()
    assert (bytes(transport.sent), transport.is_paused) == (answer * 2 * requests, False)
