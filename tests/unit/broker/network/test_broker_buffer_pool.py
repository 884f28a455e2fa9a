"""Buffers for half frames: which is used again, and which is not kept."""

from struct import pack

from test_broker_connection import arrive, new_connection

from ottla.broker.network.buffer_pool import BufferPool

SIZE = 1 << 16


def test_a_large_buffer_is_used_again() -> None:
    """Making one anew has the system clear it, page by page."""
    pool = BufferPool(SIZE)
    first = pool.take(SIZE - 1000)
    pool.give_back(first)
    assert pool.take(SIZE) is first
    assert pool.take(SIZE) is not first


def test_pool_of_other_sizes_are_not_kept() -> None:
    """A huge one would stay in memory for as long as the node runs; a small one costs nothing to make."""
    pool = BufferPool(SIZE)
    for size in (100, SIZE + 1):
        buffer = pool.take(size)
        assert len(buffer) == size
        pool.give_back(buffer)
        assert pool.take(size) is not buffer


def test_a_crowd_does_not_leave_its_pool_behind() -> None:
    pool = BufferPool(SIZE)
    crowd = [pool.take(SIZE) for _ in range(100)]
    for buffer in crowd:
        pool.give_back(buffer)
    assert len({id(buffer) for buffer in crowd} & {id(pool.take(SIZE)) for _ in range(100)}) == 8


def test_a_connection_gives_its_buffer_back_with_the_last_byte_and_when_it_goes() -> None:
    connection, _ = new_connection()
    taken: list[bytes] = []
    connection._receive = lambda frame: taken.append(bytes(frame))  # type: ignore[method-assign]
    connection.node.request_bytes_max = SIZE
    pool = connection.node.buffer_pool
    frames = [bytes([number]) * 40_000 for number in range(3)]
    sent = b"".join(pack(">i", len(frame)) + frame for frame in frames)
    arrive(connection, sent[:50_000])
    assert connection._half is not None
    buffer = connection._half._buffer
    arrive(connection, sent[50_000 : 2 * 40_004])
    assert connection.held_bytes == 0
    arrive(connection, sent[2 * 40_004 : 100_000])
    assert connection._half is not None
    assert connection._half._buffer is buffer, "the same one holds the next half"
    connection.connection_lost(None)
    assert pool.take(40_000) is buffer
    assert taken == frames[:2]
