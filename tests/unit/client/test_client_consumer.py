"""The consumer: order, fairness, isolation, and an outcome for every record."""

from collections import Counter
from typing import Any

import pytest
from client_fakes import CUT, FakeBroker, simulated
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.client import Client
from ottla.client.consumer import BEGINNING, END, Consumer, OnFailure, Received, RecordFailed, Start
from ottla.client.core.cursors import FETCH_BELOW, Cursor, Cursors
from ottla.client.core.errors import Misused, NoLeader
from ottla.client.core.names import TopicPartition
from ottla.client.core.session import FetchSession, PartitionFetch
from ottla.kernel import Aborted, Codec, ControlType, Record, RecordReader, build_batch, build_end_txn_marker
from ottla.observe.trace import names, recording
from ottla.rpc.errors import Declined
from ottla.wire.api import ApiKey
from ottla.wire.api.fetch import FetchResponse
from ottla.wire.errors import Error

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(base: int, count: int, **options: Any) -> bytes:
    return build_batch([Record(base + n, 1_000 + n, None, b"%d" % (base + n)) for n in range(count)], **options)


def stored(broker: FakeBroker, *batches: bytes, partition: int = 0) -> None:
    for one in batches:
        broker.append("t", partition, one)


async def drained(consumer: Consumer) -> list[Received]:
    records: list[Received] = []
    while got := await consumer.poll(timeout_ms=300):
        records += got
    return records


def test_everything_is_read_in_order_from_the_beginning() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        stored(broker, batch(0, 3), batch(0, 2, codec=Codec.ZSTD))
        async with Consumer(client) as consumer:
            await consumer.assign({T0: BEGINNING})
            assert [record.offset for record in await drained(consumer)] == [0, 1, 2, 3, 4]
            assert (consumer.position(T0), consumer.end(T0)) == (5, 5)
            stored(broker, batch(0, 1))
            assert [record.offset for record in await consumer.poll()] == [5]

    simulated(work)


@pytest.mark.parametrize(
    ("start", "expected"), [(Start(offset=4), [4]), (END, []), (Start(moment=-2), [0, 1, 2, 3, 4])]
)
def test_start_may_lie_anywhere_also_inside_a_batch(start: Start, expected: list[int]) -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        stored(broker, batch(0, 3), batch(0, 2))
        async with Consumer(client) as consumer:
            await consumer.assign({T0: start})
            assert [record.offset for record in await drained(consumer)] == expected

    simulated(work)


@pytest.mark.parametrize("new_consumer", [False, True])
def test_an_answer_that_was_under_way_at_a_seek_is_not_given_out(new_consumer: bool) -> None:
    """It is one to another question: taken, it would be read as what comes at the new position."""

    async def work(client: Client, broker: FakeBroker) -> None:
        stored(broker, batch(0, 3), batch(0, 3))
        async with Consumer(client) as consumer:
            await consumer.assign({T0: Start(offset=6)})
            assert await consumer.poll(timeout_ms=50) == []  # It waits at the end, at the broker.
            stored(broker, batch(0, 2))
            if new_consumer:
                await consumer.assign({T0: Start(offset=1)})
            else:
                await consumer.seek(T0, Start(offset=1))
            got = await consumer.poll(timeout_ms=2_000)  # The fetch under way has the connection until then.
            assert [record.offset for record in (*got, *await drained(consumer))] == [1, 2, 3, 4, 5, 6, 7]

    simulated(work)


def test_partition_that_does_not_exist_is_named_when_it_is_assigned() -> None:
    async def work(client: Client, _: FakeBroker) -> None:
        async with Consumer(client) as consumer:
            with pytest.raises(NoLeader, match=r"there is no partition t-4"):
                await consumer.assign({TopicPartition("t", 4): BEGINNING})
            with pytest.raises(Misused, match=r"t-0 is not assigned"):
                consumer.position(T0)

    simulated(work, api_timeout_ms=500)


def test_offset_outside_the_log_is_an_error_or_a_reset() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        stored(broker, batch(0, 3))
        async with Consumer(client) as consumer:
            await consumer.assign({T0: Start(offset=99)})
            with pytest.raises(Declined, match=r"t-0.*offset 99 is not in the log, which starts at 0 and ends at 3"):
                await consumer.poll()
            await consumer.seek(T0, BEGINNING)
            assert len(await consumer.poll()) == 3
        async with Consumer(client, reset=BEGINNING) as consumer:
            await consumer.assign({T0: Start(offset=99)})
            assert len(await consumer.poll()) == 3

    simulated(work)


def test_lost_connection_costs_nothing_but_time() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        stored(broker, batch(0, 3))
        broker.answer_once(ApiKey.FETCH, lambda _: CUT, lambda _: CUT)
        async with Consumer(client) as consumer:
            await consumer.assign({T0: BEGINNING})
            assert [record.offset for record in await consumer.poll(timeout_ms=5_000)] == [0, 1, 2]

    simulated(work)


def test_trouble_that_lasts_is_raised() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        broker.apis[ApiKey.FETCH] = lambda _: FetchResponse(
            throttle_time_ms=0, error_code=Error.FETCH_SESSION_ID_NOT_FOUND, responses=[]
        )
        async with Consumer(client) as consumer:
            await consumer.assign({T0: BEGINNING})
            with pytest.raises(Declined, match=r"FETCH_SESSION_ID_NOT_FOUND"):
                await consumer.poll(timeout_ms=9_000)

    simulated(work, api_timeout_ms=3_000)


def _decode(value: bytes | None) -> int:
    number = int(value or b"")
    if number == 2:
        raise ValueError("two is not allowed")
    return number


def test_record_that_cannot_be_decoded_stops_after_its_good_neighbours_until_somebody_moves_on() -> None:
    """X6: neither a loop without end in silence nor a loss of the neighbours."""

    async def work(client: Client, broker: FakeBroker) -> None:
        stored(broker, batch(0, 5))
        async with Consumer(client, decode_value=_decode) as consumer:
            await consumer.assign({T0: BEGINNING})
            assert [record.value for record in await consumer.poll()] == [0, 1]
            for _ in range(2):
                with pytest.raises(RecordFailed, match=r"t-0, offset 2: its value.*two is not allowed") as failed:
                    await consumer.poll()
            assert consumer.position(T0) == 2
            await consumer.seek(T0, Start(offset=failed.value.failure.next_offset))
            assert [record.value for record in await consumer.poll()] == [3, 4]

    simulated(work)


def test_record_that_cannot_be_decoded_is_skipped_or_given_out_by_choice() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        stored(broker, batch(0, 5))
        async with Consumer(client, decode_value=_decode, on_failure=OnFailure.SKIP) as consumer:
            await consumer.assign({T0: BEGINNING})
            assert [record.value for record in await consumer.poll()] == [0, 1, 3, 4]
        async with Consumer(client, decode_value=_decode, on_failure=OnFailure.GIVE) as consumer:
            await consumer.assign({T0: BEGINNING})
            received = await consumer.poll()
            assert [record.value for record in received] == [0, 1, b"2", 3, 4]
            assert [record.offset for record in received if record.failure is not None] == [2]

    with recording() as events:
        simulated(work)
    assert names(events) == ["client.record_skipped"]


def _with_damage(broker: FakeBroker) -> None:
    stored(broker, batch(0, 2), batch(0, 2), batch(0, 2))
    log = broker.logs["t", 0]
    log[1] = log[1]._replace(data=log[1].data[:-1] + bytes([log[1].data[-1] ^ 1]))


@pytest.mark.parametrize(("choice", "offsets"), [(OnFailure.SKIP, [0, 1, 4, 5]), (OnFailure.GIVE, [0, 1, 2, 4, 5])])
def test_damaged_batch_is_passed_by_choice(choice: OnFailure, offsets: list[int]) -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        _with_damage(broker)
        async with Consumer(client, on_failure=choice) as consumer:
            await consumer.assign({T0: BEGINNING})
            assert [record.offset for record in await drained(consumer)] == offsets

    with recording():
        simulated(work)


def test_damaged_batch_stops_at_its_first_offset() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        _with_damage(broker)
        async with Consumer(client) as consumer:
            await consumer.assign({T0: BEGINNING})
            assert [record.offset for record in await consumer.poll()] == [0, 1]
            with pytest.raises(RecordFailed, match=r"t-0, offset 2: .*CRC") as failed:
                await consumer.poll()
            assert failed.value.failure.next_offset == 4

    simulated(work)


def test_paused_partition_gives_nothing_until_resumed() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        stored(broker, batch(0, 2))
        async with Consumer(client) as consumer:
            await consumer.assign({T0: BEGINNING})
            consumer.pause(T0)
            assert await consumer.poll(timeout_ms=500) == []
            consumer.resume(T0)
            assert len(await consumer.poll()) == 2

    simulated(work)


def test_aborted_transactions_are_left_out_and_committed_ones_are_not() -> None:
    """I4: also where the aborted transactions of two producers are interleaved with committed data."""
    txn = {"transactional": True, "producer_epoch": 0, "base_sequence": 0}
    marker = {"timestamp": 1, "producer_epoch": 0}
    log = b"".join(
        [
            batch(0, 2, producer_id=1, **txn),
            batch(2, 1, producer_id=2, **txn),
            batch(3, 1),
            build_end_txn_marker(ControlType.ABORT, 0, producer_id=1, base_offset=4, **marker),
            batch(5, 1, producer_id=1, **txn),
            build_end_txn_marker(ControlType.COMMIT, 0, producer_id=2, base_offset=6, **marker),
            build_end_txn_marker(ControlType.COMMIT, 0, producer_id=1, base_offset=7, **marker),
        ]
    )
    reader = RecordReader(log, 0, [Aborted(0, 1)])
    assert [record.offset for record in reader.take()] == [2, 3, 5]
    assert reader.next_offset == 8
    assert [record.offset for record in RecordReader(log, 0).take()] == [0, 1, 2, 3, 5]


def test_first_batch_larger_than_the_answer_says_how_large_it_is() -> None:
    whole = batch(0, 10)
    for data, needed in ((whole[:-1], len(whole)), (whole + whole[:30], 0)):
        cursor = Cursor(T0, 0, 1)
        cursor.take_in(RecordReader(data, 0))
        assert cursor.max_bytes == max(needed, 1)


def fetched(count: int, **how: Any) -> RecordReader:
    return RecordReader(batch(0, count, **how) if count else b"", 0)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 30))
def test_takes_are_shared_fairly(loads: list[int], limit: int) -> None:
    """X7: while both have records, no partition gets more than one turn ahead of another."""
    cursors = Cursors()
    for number, load in enumerate(loads):
        cursor = Cursor(TopicPartition("t", number), 0, 1)
        cursor.take_in(fetched(load))
        cursors.add(cursor)
    given_out: Counter[int] = Counter()
    while taken := cursors.take(limit):
        assert len(taken) <= limit
        before = dict(given_out)
        given_out.update(cursor.partition.partition for cursor, _ in taken)
        busy = [n for n, load in enumerate(loads) if before.get(n, 0) + limit <= load]
        shares = [given_out[n] - before.get(n, 0) for n in busy]
        if len(busy) == len(loads):
            assert max(shares) - min(shares) <= 1 or limit < len(loads)
    assert [given_out[n] for n in range(len(loads))] == loads


def test_partition_after_the_last_served_comes_first_next_time() -> None:
    cursors = Cursors()
    for number in range(3):
        cursor = Cursor(TopicPartition("t", number), 0, 1)
        cursor.take_in(fetched(9))
        cursors.add(cursor)
    served = [cursor.partition.partition for _ in range(6) for cursor, _ in cursors.take(1)]
    assert served == [0, 1, 2, 0, 1, 2]


def test_partition_with_much_unread_is_not_fetched_again() -> None:
    cursor = Cursor(T0, 0, 1)
    assert cursor.wants_more
    cursor.take_in(fetched(FETCH_BELOW))
    assert not cursor.wants_more
    cursor.pop(1)
    assert cursor.wants_more


def test_what_was_fetched_is_unpacked_as_it_is_taken() -> None:
    """A few kilobytes may hold millions of records; a consumer that takes hundreds must not hold them all."""
    cursor, cursors, held = Cursor(T0, 0, 1), Cursors(), []
    cursor.take_in(fetched(10 * FETCH_BELOW, codec=Codec.ZSTD))
    cursors.add(cursor)
    offsets: list[int] = []
    while taken := cursors.take(100):
        held.append(len(cursor.records))
        offsets += [record.offset for _, record in taken]
    assert offsets == list(range(10 * FETCH_BELOW))
    assert max(held) <= 2 * FETCH_BELOW
    assert (cursor.position, cursor.wants_more) == (10 * FETCH_BELOW, True)


def test_session_sends_only_what_changed() -> None:
    asked = PartitionFetch(b"1" * 16, 0, 3, 100)
    session = FetchSession()
    first = session.request({T0: asked, T1: asked})
    assert (first.session_id, first.epoch, list(first.partitions)) == (0, 0, [T0, T1])
    session.answered(55)
    moved = asked._replace(offset=7)
    second = session.request({T0: moved, T1: asked})
    assert (second.session_id, second.epoch, list(second.partitions), second.forgotten) == (55, 1, [T0], {})
    session.answered(55)
    third = session.request({T0: moved})
    assert (third.epoch, list(third.partitions), list(third.forgotten)) == (2, [], [T1])


def test_session_the_broker_did_not_keep_or_lost_starts_anew() -> None:
    asked = {T0: PartitionFetch(b"1" * 16, 0, 3, 100)}
    session = FetchSession()
    session.request(asked)
    session.answered(0)
    assert session.request(asked)[:2] == (0, 0)
    session.answered(55)
    session.reset()
    assert session.request(asked) == (0, 0, asked, {})


def test_topic_made_anew_is_forgotten_under_its_old_id() -> None:
    session = FetchSession()
    session.request({T0: PartitionFetch(b"1" * 16, 5, 3, 100)})
    session.answered(55)
    again = session.request({T0: PartitionFetch(b"2" * 16, 0, 0, 100)})
    assert again.forgotten[T0].topic_id == b"1" * 16
    assert again.partitions[T0].topic_id == b"2" * 16
