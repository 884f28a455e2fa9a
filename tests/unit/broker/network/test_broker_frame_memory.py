"""Frames that have arrived in part: where they are kept, how much of that there may be, and who has to wait."""

import mmap
from struct import pack
from typing import Any

import pytest
from broker_connection_samples import Transport, arrive, new_connection

from ottla.broker.network.buffer_pool import BufferPool
from ottla.broker.network.connection import Connection
from ottla.broker.network.frame_memory import DEFAULT_BYTES_MAX, FrameMemory
from ottla.broker.network.half_frame import POOLED_BYTES, HalfFrame
from ottla.observe.trace import recording

MIB = 1 << 20
LIMIT = 100 * MIB


def half(announced: int, begun: bytes = b"") -> HalfFrame:
    return HalfFrame(BufferPool(POOLED_BYTES), LIMIT, memoryview(pack(">i", announced) + begun))


def fill(frame: HalfFrame, count: int) -> bool:
    """As so many bytes arrive; whether the frame is whole."""
    while count:
        room = frame.free()
        size = min(count, len(room))
        room[:size] = b"x" * size
        count -= size
        if frame.received(size):
            return True
    return False


# One frame.


@pytest.mark.parametrize("announced", [10, 3_000, 5_000, 200_000, POOLED_BYTES, 300_000, 3 * MIB])
def test_frame_is_whole_with_its_last_byte(announced: int) -> None:
    frame = half(announced)
    assert not fill(frame, announced - 1)
    assert fill(frame, 1)
    assert len(frame) == announced + 4
    assert bytes(frame.data[:8]) == pack(">i", announced) + b"xxxx"


def test_memory_follows_what_arrives_and_not_what_was_announced() -> None:
    frame = half(90 * MIB)
    assert frame.held_bytes <= POOLED_BYTES
    fill(frame, POOLED_BYTES)
    assert frame.held_bytes <= 2 * POOLED_BYTES
    fill(frame, 5 * MIB)
    assert frame.held_bytes <= 6 * MIB


def test_huge_frame_is_not_copied_while_it_grows() -> None:
    """Copying what is there every time it has doubled, and clearing the new half, takes longer than receiving it."""
    frame = half(60 * MIB)
    fill(frame, POOLED_BYTES + 1)
    room = frame._buffer
    assert isinstance(room, mmap.mmap)
    assert len(room) == 60 * MIB + 4
    fill(frame, 20 * MIB)
    assert frame._buffer is room


@pytest.mark.parametrize("size", [-1, LIMIT + 1])
def test_size_that_cannot_be_is_whole_as_soon_as_it_is_known(size: int) -> None:
    """So that it is looked at, and refused."""
    frame = HalfFrame(BufferPool(POOLED_BYTES), LIMIT, memoryview(pack(">i", size)[:3]))
    frame.free()[:1] = pack(">i", size)[3:]
    assert frame.received(1)


# All of them.


class Holder:
    def __init__(self) -> None:
        self.told = 0

    def go_on(self) -> None:
        self.told += 1


def test_whoever_was_first_goes_on_and_the_others_wait_their_turn() -> None:
    memory = FrameMemory(100 * MIB)
    first, second, third = Holder(), Holder(), Holder()
    for holder in (first, second, third):
        memory.holds(holder, 30 * MIB)
        assert not memory.must_wait(holder)
    memory.holds(third, 50 * MIB)
    assert memory.must_wait(third)
    memory.holds(first, 90 * MIB)
    assert not memory.must_wait(first), "or nobody would ever be done"
    memory.holds(second, 40 * MIB)
    assert memory.must_wait(second)
    assert list(memory.waiting) == [third, second]
    memory.holds(first, 0)
    assert (first.told, second.told, third.told) == (0, 1, 1)
    assert not memory.waiting
    assert memory.total == 90 * MIB


def test_one_that_waits_goes_on_when_it_is_the_first() -> None:
    memory = FrameMemory(10 * MIB)
    first, second, third = Holder(), Holder(), Holder()
    for holder in (first, second, third):
        memory.holds(holder, 9 * MIB)
    assert memory.must_wait(second)
    assert memory.must_wait(third)
    memory.holds(first, 0)
    assert (second.told, third.told) == (1, 0), "there is room for one"
    memory.holds(second, 0)
    assert third.told == 1


def test_small_frames_never_wait() -> None:
    memory = FrameMemory(10 * MIB)
    large, small = Holder(), Holder()
    memory.holds(large, 50 * MIB)
    memory.holds(small, 1_000)
    assert not memory.must_wait(small)


def test_without_a_setting_there_is_a_bound_all_the_same() -> None:
    memory = FrameMemory(-1)
    holders = [Holder() for _ in range(20)]
    waiting = 0
    for holder in holders:
        memory.holds(holder, 60 * MIB)
        waiting += memory.must_wait(holder)
    assert waiting == 16
    assert memory.total - 16 * 60 * MIB <= DEFAULT_BYTES_MAX


# As a connection.


def connections(count: int, limit: int) -> list[tuple[Connection, Transport]]:
    made = [new_connection() for _ in range(count)]
    shared = FrameMemory(limit)
    for connection, _ in made:
        connection.node.frame_memory = shared
        connection.node.request_bytes_max = LIMIT
        connection.node.connections = made[0][0].node.connections
        connection._receive = lambda _frame: None  # type: ignore[method-assign]
    return made


def pour(connection: Connection, data: bytes) -> None:
    """Until it takes no more; as a socket does, piece by piece."""
    for at in range(0, len(data), 1 << 15):
        if connection._paused:
            return
        arrive(connection, data[at : at + (1 << 15)])


def test_connection_is_not_read_from_while_there_is_no_memory() -> None:
    (first, first_transport), (second, second_transport) = connections(2, MIB)
    frame = pack(">i", 2 * MIB) + bytes(2 * MIB)
    pour(first, frame[:1_500_000])
    pour(second, frame)
    assert not first_transport.is_paused
    assert second_transport.is_paused
    assert second.half_frame_since_ms is None, "it is not the client that keeps the rest waiting"
    assert first.held_bytes + second.held_bytes < 2 * MIB
    pour(first, frame[1_500_000:])
    assert not second_transport.is_paused, "the first is done"
    assert first.held_bytes == 0
    assert first.node.frame_memory.total == second.held_bytes


def test_client_that_stalls_while_others_wait_is_cut_off() -> None:
    clock = {"ms": 0}
    made = connections(3, MIB)
    (stalled, stalled_transport), (waiting, waiting_transport), (other, other_transport) = made
    for connection, _ in made:
        connection.node.clock.monotonic_ms = lambda: clock["ms"]  # type: ignore[method-assign]
    everyone: Any = stalled.node.connections
    for connection in (waiting, other):
        everyone.admit(connection)
    frame = pack(">i", 2 * MIB) + bytes(2 * MIB)
    pour(stalled, frame[:1_500_000])
    pour(waiting, frame)
    pour(other, frame[:10_000])
    clock["ms"] = 5_001
    pour(other, frame[:100])
    everyone.close_silent(clock["ms"])
    assert not stalled_transport.aborted, "as long as nobody waits"
    with recording() as events:
        everyone.close_silent(clock["ms"], others_wait=True)
    assert (stalled_transport.aborted, waiting_transport.aborted, other_transport.aborted) == (True, False, False)
    assert [event.name for event in events] == ["connection.refused"]
    assert "others wait for memory" in events[0].fields["reason"]
    stalled.connection_lost(None)
    assert not waiting_transport.is_paused


def test_memory_that_the_system_does_not_have_ends_the_connection() -> None:
    [(connection, transport)] = connections(1, MIB)
    arrive(connection, pack(">i", MIB) + bytes(10_000))

    def none_left(_size: int) -> Any:
        raise OSError(12, "Cannot allocate memory")

    connection.node.buffer_pool.take = none_left  # type: ignore[method-assign]
    with recording() as events:
        while not transport.aborted:
            arrive(connection, bytes(min(len(connection.get_buffer(-1)), 10_000)))
    assert "no memory for the rest of a frame" in events[0].fields["reason"]
    arrive(connection, b"whatever was under way")
