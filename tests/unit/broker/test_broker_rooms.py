"""Room for half frames: which is used again, and which is not kept."""

from struct import pack

from test_broker_connection import arrive, new_connection

from ottla.broker.rooms import Rooms

SIZE = 1 << 16


def test_a_large_room_is_used_again() -> None:
    """Making one anew has the system clear it, page by page."""
    rooms = Rooms(SIZE)
    first = rooms.take(SIZE - 1000)
    rooms.give_back(first)
    assert rooms.take(SIZE) is first
    assert rooms.take(SIZE) is not first


def test_rooms_of_other_sizes_are_not_kept() -> None:
    """A huge one would stay in memory for as long as the node runs; a small one costs nothing to make."""
    rooms = Rooms(SIZE)
    for size in (100, SIZE + 1):
        room = rooms.take(size)
        assert len(room) == size
        rooms.give_back(room)
        assert rooms.take(size) is not room


def test_a_crowd_does_not_leave_its_rooms_behind() -> None:
    rooms = Rooms(SIZE)
    crowd = [rooms.take(SIZE) for _ in range(100)]
    for room in crowd:
        rooms.give_back(room)
    assert len({id(room) for room in crowd} & {id(rooms.take(SIZE)) for _ in range(100)}) == 8


def test_a_connection_gives_its_room_back_with_the_last_byte_and_when_it_goes() -> None:
    connection, _ = new_connection()
    taken: list[bytes] = []
    connection._receive = lambda frame: taken.append(bytes(frame))  # type: ignore[method-assign]
    connection.node.request_bytes_max = SIZE
    rooms = connection.node.rooms
    frames = [bytes([number]) * 40_000 for number in range(3)]
    sent = b"".join(pack(">i", len(frame)) + frame for frame in frames)
    arrive(connection, sent[:50_000])
    assert connection._half is not None
    room = connection._half._room
    arrive(connection, sent[50_000 : 2 * 40_004])
    assert connection.held_bytes == 0
    arrive(connection, sent[2 * 40_004 : 100_000])
    assert connection._half is not None
    assert connection._half._room is room, "the same one holds the next half"
    connection.connection_lost(None)
    assert rooms.take(40_000) is room
    assert taken == frames[:2]
