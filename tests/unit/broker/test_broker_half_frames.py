"""How long half a frame may stay half."""

from struct import pack

from test_broker_connection import arrive, new_connection

API_VERSIONS = pack(">hhih", 18, 0, 1, -1)
FRAME = pack(">i", len(API_VERSIONS)) + API_VERSIONS


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
