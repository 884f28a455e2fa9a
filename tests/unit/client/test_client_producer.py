"""The producer: order, retries, one fate for every record, and never waiting in `send`."""

import asyncio
from typing import Any

import pytest
from client_fakes import CUT, SILENCE, FakeBroker, outcomes, produce_error, simulated
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.client import Client
from ottla.client.core.accumulator import Accumulator, Batch, Draft
from ottla.client.core.errors import BufferFull, DeliveryFailed, DeliveryUnknown, Misused, RecordTooLarge
from ottla.client.core.names import TopicPartition
from ottla.client.producer import Delivery, Producer
from ottla.kernel import BatchBuilder, Codec, read_header, read_records
from ottla.observe.trace import names, recording
from ottla.rpc.errors import ClientError
from ottla.wire.api import ApiKey
from ottla.wire.api.produce import BatchIndexAndErrorMessage
from ottla.wire.errors import Error
from ottla.wire.frame import Request

T0 = TopicPartition("t", 0)


def values(broker: FakeBroker, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    return [one.value for batch in broker.logs.get((topic, partition), []) for one in read_records(batch.data)]


def test_deliveries_say_where_each_record_is() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client) as producer:
            sent = [producer.send("t", b"%d" % n, key=b"k", headers=[("h", None)], timestamp=n) for n in range(3)]
            assert await asyncio.gather(*sent) == [Delivery("t", 0, n, n) for n in range(3)]
        record = read_records(broker.logs["t", 0][0].data)[1]
        assert (record.key, record.value, record.timestamp, record.headers) == (b"k", b"1", 1, (("h", None),))

    simulated(work)


def test_records_of_a_moment_share_a_batch() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client, linger_ms=10) as producer:
            for n in range(100):
                producer.send("t", b"%d" % n)
        assert len(broker.logs["t", 0]) == 1
        assert values(broker) == [b"%d" % n for n in range(100)]

    simulated(work)


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_compressed(codec: Codec) -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client, codec=codec) as producer:
            await producer.send("t", b"x" * 1_000)
        assert read_header(broker.logs["t", 0][0].data).codec is codec
        assert values(broker) == [b"x" * 1_000]

    simulated(work)


def test_send_takes_records_while_the_topic_is_not_known_yet() -> None:
    """X5: the caller never waits; the records do."""

    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client) as producer:
            sent = [producer.send("late", b"%d" % n) for n in range(3)]
            await asyncio.sleep(1)
            assert not any(future.done() for future in sent)
            broker.topics["late"] = 1
            assert [(await future).offset for future in sent] == [0, 1, 2]

    simulated(work)


def test_topic_that_never_appears_fails_its_records_and_names_the_broker() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client, delivery_timeout_ms=500) as producer:
            with pytest.raises(DeliveryFailed, match=r"topic nope, broker broker.test:9092: .*create the topic first"):
                await producer.send("nope", b"")
            await producer.send("t", b"")  # Others are not concerned.
        assert values(broker) == [b""]

    simulated(work)


@pytest.mark.parametrize("trouble", [lambda _: CUT, lambda _: SILENCE, produce_error(Error.NOT_LEADER_OR_FOLLOWER)])
def test_what_fails_is_sent_again_before_what_came_later(trouble: Any) -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.PRODUCE, trouble, trouble)
        async with Producer(client, linger_ms=0) as producer:
            sent = [producer.send("t", b"0")]
            await asyncio.sleep(0.001)
            sent += [producer.send("t", b"%d" % n) for n in range(1, 5)]
            assert [(await future).offset for future in sent] == [0, 1, 2, 3, 4]
        assert values(broker) == [b"0", b"1", b"2", b"3", b"4"]

    simulated(work, request_timeout_ms=1_000)


def _stored_but_unanswered(broker: FakeBroker) -> Any:
    def handle(request: Request) -> Any:
        broker.produce(request)
        return CUT

    return handle


def test_batch_whose_answer_was_lost_is_stored_once() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.PRODUCE, _stored_but_unanswered(broker))
        async with Producer(client) as producer:
            assert (await producer.send("t", b"once")).offset == 0
            assert (await producer.send("t", b"next")).offset == 1
        assert values(broker) == [b"once", b"next"]
        assert [batch.sequence for batch in broker.logs["t", 0]] == [0, 1]

    simulated(work)


def test_without_idempotence_the_same_costs_a_duplicate() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.PRODUCE, _stored_but_unanswered(broker))
        async with Producer(client, idempotent=False) as producer:
            await producer.send("t", b"twice")
        assert values(broker) == [b"twice", b"twice"]
        assert broker.asked(ApiKey.INIT_PRODUCER_ID) == []

    simulated(work)


def test_refused_batch_leaves_no_hole_in_the_sequence() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.PRODUCE, produce_error(Error.TOPIC_AUTHORIZATION_FAILED, error_message="No."))
        async with Producer(client) as producer:
            with pytest.raises(DeliveryFailed, match=r"partition t-0, broker broker.test:9092: No \(TOPIC_AUTH"):
                await producer.send("t", b"0")
            await producer.send("t", b"1")
        assert [batch.sequence for batch in broker.logs["t", 0]] == [0]

    simulated(work)


def test_error_of_the_disk_leaves_open_whether_the_records_are_there() -> None:
    """They may have been written before the sync failed, and be found when the log is opened again."""

    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client, delivery_timeout_ms=1_000) as producer:
            broker.answer_once(ApiKey.PRODUCE, *[produce_error(Error.KAFKA_STORAGE_ERROR)] * 20)
            with pytest.raises(DeliveryUnknown, match="KAFKA_STORAGE_ERROR"):
                await producer.send("t", b"0")

    simulated(work)


def test_outcome_nobody_knows_is_told_as_that_and_the_next_batch_has_a_new_identity() -> None:
    """I10: a time-out is no failure. A sequence after it could be a gap or a repetition."""

    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client, delivery_timeout_ms=2_000) as producer:
            await producer.send("t", b"0")
            broker.answer_once(ApiKey.PRODUCE, *[lambda _: SILENCE] * 3)
            with pytest.raises(DeliveryUnknown, match=r"partition t-0.*no answer to Produce"):
                await producer.send("t", b"1")
            broker.instead.clear()
            await producer.send("t", b"2")
        assert [(batch.producer_id, batch.sequence) for batch in broker.logs["t", 0]] == [(101, 0), (102, 0)]

    simulated(work, request_timeout_ms=1_000)


def test_producer_the_broker_forgot_goes_on_under_a_new_id() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client) as producer:
            await producer.send("t", b"0")
            broker.answer_once(ApiKey.PRODUCE, produce_error(Error.UNKNOWN_PRODUCER_ID))
            assert (await producer.send("t", b"1")).offset == 1
        assert [(batch.producer_id, batch.sequence) for batch in broker.logs["t", 0]] == [(101, 0), (102, 0)]

    simulated(work)


def test_batch_over_the_topics_limit_is_split_with_a_warning() -> None:
    """X4: not in silence."""

    async def work(client: Client, broker: FakeBroker) -> None:
        broker.answer_once(ApiKey.PRODUCE, produce_error(Error.MESSAGE_TOO_LARGE))
        async with Producer(client, linger_ms=10) as producer:
            sent = [producer.send("t", b"%d" % n) for n in range(5)]
            assert [(await future).offset for future in sent] == [0, 1, 2, 3, 4]
        assert values(broker) == [b"%d" % n for n in range(5)]
        assert [read_header(batch.data).count for batch in broker.logs["t", 0]] == [2, 3]

    with recording() as events:
        simulated(work)
    assert names(events) == ["client.batch_split"]


def test_refused_record_does_not_take_its_neighbours_along() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        blamed = [BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="It has no key.")]
        broker.answer_once(ApiKey.PRODUCE, produce_error(Error.INVALID_RECORD, record_errors=blamed))
        async with Producer(client, linger_ms=10) as producer:
            first, second, third = await outcomes([producer.send("t", b"%d" % n) for n in range(3)])
        assert (first, third) == (Delivery("t", 0, 0, first.timestamp), Delivery("t", 0, 1, third.timestamp))  # type: ignore[union-attr]
        assert isinstance(second, DeliveryFailed)
        assert "It has no key" in str(second)
        assert values(broker) == [b"0", b"2"]

    simulated(work)


def test_full_buffer_is_told_at_once_and_room_waits_for_it() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client, buffer_bytes=5_000, record_bytes_max=2_000) as producer:
            sent = [producer.send("t", b"x" * 1_500) for _ in range(3)]
            with pytest.raises(BufferFull, match=r"5,000 bytes"):
                producer.send("t", b"x" * 1_500)
            assert not producer.has_room
            await producer.room()
            sent.append(producer.send("t", b"x" * 1_500))
        assert [future.result().offset for future in sent] == [0, 1, 2, 3]
        assert len(values(broker)) == 4

    simulated(work)


def test_record_too_large_is_told_with_both_numbers() -> None:
    async def work(client: Client, _: FakeBroker) -> None:
        async with Producer(client, record_bytes_max=1_000) as producer:
            fits = 1_000 - len(_batch_of(b"", 1))
            with pytest.raises(RecordTooLarge, match=r"topic t: a record takes 1,0.. bytes, 1,000 are allowed"):
                producer.send("t", b"x" * (fits + 2))
            await producer.send("t", b"x" * (fits - 2))

    simulated(work)


def test_acks_none_asks_for_no_answer() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client, acks=0) as producer:
            assert (await producer.send("t", b"x")).offset == -1
        assert broker.asked(ApiKey.PRODUCE)[0].body.acks == 0
        assert values(broker) == [b"x"]

    simulated(work)


def test_broker_that_knows_no_topic_ids_is_sent_names() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        broker.versions[ApiKey.METADATA] = (0, 9)
        async with Producer(client) as producer:
            await producer.send("t", b"x")
        assert [request.version for request in broker.asked(ApiKey.PRODUCE)] == [12]

    simulated(work)


def test_partition_that_does_not_exist_fails_that_record() -> None:
    async def work(client: Client, _: FakeBroker) -> None:
        async with Producer(client) as producer:
            with pytest.raises(DeliveryFailed, match=r"there is no partition 7"):
                await producer.send("t", b"x", partition=7)

    simulated(work)


def test_topic_without_a_leader_does_not_hold_up_the_others() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client, delivery_timeout_ms=3_000) as producer:
            await producer.send("stuck", b"")
            broker.leaderless.append("stuck")
            client.metadata.stale("stuck")
            stuck = producer.send("stuck", b"")
            await asyncio.sleep(0.5)
            before = client.ports.clock.monotonic_ms()
            await producer.send("t", b"")
            assert client.ports.clock.monotonic_ms() - before < 20
            with pytest.raises(DeliveryFailed, match="partition stuck-0: its time is over"):
                await stuck
        assert len(broker.asked(ApiKey.METADATA)) < 50

    simulated(work, {"t": 1, "stuck": 1})


def test_closing_without_flush_fails_what_was_not_sent() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        producer = Producer(client, linger_ms=10_000)
        await client.metadata.topic("t", timeout_ms=0)
        sent = producer.send("t", b"x")
        await producer.close(flush=False)
        with pytest.raises(DeliveryFailed, match=r"the producer was closed"):
            await sent
        with pytest.raises(Misused):
            producer.send("t", b"x")
        assert values(broker) == []

    simulated(work)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"value": "text"}, r"value is str 'text'. \.encode\(\) makes bytes of it"),
        ({"key": 7}, r"key is int 7. Records hold bytes, or None"),
        ({"headers": [("h", "text")]}, r"header 'h' is str"),
        ({"headers": [(b"h", b"")]}, r"header name is bytes"),
        ({"headers": [("\ud800", b"")]}, r"header name is str .* surrogates not allowed"),
        ({"timestamp": -1}, r"timestamp is -1"),
        ({"timestamp": 1 << 63}, r"timestamp is 9223372036854775808"),
        ({"timestamp": 0.5}, r"timestamp is 0\.5"),
        ({"partition": "0"}, r"partition is str '0'"),
        ({"topic": "\ud800"}, r"topic is str"),
        ({"topic": 7}, r"topic is int 7"),
    ],
)
def test_what_no_record_can_hold_is_refused_at_once_and_the_producer_goes_on(wrong: dict[str, Any], text: str) -> None:
    """It used to meet its neighbours' batch, which then was never built: no future ended, and `close` hung."""

    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client) as producer:
            with pytest.raises(Misused, match=text):
                producer.send(**({"topic": "t", "value": b"x"} | wrong))
            await producer.send("t", b"next")
        assert values(broker) == [b"next"]

    simulated(work)


def test_bytes_that_can_change_are_copied() -> None:
    async def work(client: Client, broker: FakeBroker) -> None:
        async with Producer(client) as producer:
            value = bytearray(b"before")
            sent = [producer.send("t", value, key=memoryview(b"k"))]
            value[:] = b"after!"
            await asyncio.gather(*sent)
        assert values(broker) == [b"before"]

    simulated(work)


@pytest.mark.parametrize("answer", [CUT, SILENCE])
def test_send_ends_with_the_clients_time_for_a_call(answer: str) -> None:
    """Whatever keeps the record from being delivered: here a broker that never answers a Produce."""

    async def work(client: Client, broker: FakeBroker) -> float:
        broker.apis[ApiKey.PRODUCE] = lambda _: answer
        loop = asyncio.get_running_loop()
        async with Producer(client) as producer:
            begun = loop.time()
            with pytest.raises((DeliveryFailed, DeliveryUnknown)):
                await producer.send("t", b"x")
            return loop.time() - begun

    assert simulated(work, api_timeout_ms=3_000) <= 3.1


def test_finding_the_topic_counts_towards_the_time_of_a_record() -> None:
    async def work(client: Client, broker: FakeBroker) -> float:
        broker.apis[ApiKey.PRODUCE] = lambda _: SILENCE
        loop = asyncio.get_running_loop()
        async with Producer(client) as producer:
            begun = loop.time()
            sent = producer.send("late", b"x")
            await asyncio.sleep(2)
            broker.topics["late"] = 1
            with pytest.raises(DeliveryUnknown):
                await sent
            return loop.time() - begun

    assert simulated(work, api_timeout_ms=3_000) <= 3.1


def test_a_defect_while_sending_ends_every_future(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> bytes:
        raise AssertionError("a defect")

    async def work(client: Client, _: FakeBroker) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # Which would print the defect.
        monkeypatch.setattr(Batch, "build", broken)
        async with Producer(client) as producer:
            with pytest.raises(ClientError, match="the producer failed: AssertionError"):
                await producer.send("t", b"x")

    simulated(work)


@pytest.mark.parametrize("settings", [{"acks": 2}, {"acks": 1, "idempotent": True}])
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any]) -> None:
    async def work(client: Client, _: FakeBroker) -> None:
        with pytest.raises(Misused):
            Producer(client, **settings)

    simulated(work)


def _batch_of(value: bytes, count: int) -> bytes:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(0, None, value)
    return builder.build()


@given(
    st.binary(max_size=300) | st.none(),
    st.binary(max_size=300) | st.none(),
    st.lists(st.tuples(st.text(), st.binary())),
)
def test_bound_of_a_records_size_holds(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    """The buffer is counted by it, and batches would grow past their limit otherwise."""
    assert BatchBuilder().append(2**62, key, value, headers) <= Draft.of(2**62, key, value, headers, None).size_max


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("adrsxf")), max_size=60))
def test_every_record_leaves_once_and_in_order(steps: list[tuple[int, str]]) -> None:
    """Whatever is added, sent, retried, split, refused or expired, in whatever order."""
    records = Accumulator(batch_bytes=400, linger_ms=5, delivery_timeout_ms=50)
    added: dict[int, list[int]] = {0: [], 1: [], 2: []}
    left: dict[int, list[int]] = {0: [], 1: [], 2: []}
    under_way: dict[int, Batch] = {}
    now = 0

    def gone(batches: list[Batch]) -> None:
        for batch in batches:
            left[batch.partition.partition] += [draft.token for draft in batch.drafts]

    for number, (partition, step) in enumerate(steps):
        now += 3
        if step == "a":
            records.add(TopicPartition("t", partition), Draft.of(0, None, b"x" * 100, (), number), now)
            added[partition].append(number)
        elif step == "f":
            records.flush(now)
        elif step == "x":
            gone(records.expired(now))
        elif partition in under_way:
            batch = under_way.pop(partition)
            if step == "d":
                records.done(batch)
                gone([batch])
            elif step == "s" and len(batch.drafts) > 1:
                records.split(batch)
            else:
                batch.attempts += 1
                records.again(batch, now + 4)
        for groups in records.take(now, lambda _: 1, 10_000)[0].values():
            for batch in [one for group in groups for one in group]:
                assert batch.partition.partition not in under_way
                under_way[batch.partition.partition] = batch
    assert left == {partition: sorted(tokens) for partition, tokens in left.items()}
    gone(records.give_up())
    assert {partition: sorted(tokens) for partition, tokens in left.items()} == added
    assert records.held_bytes == 0
    assert records.empty


def test_batch_is_due_after_linger_or_when_full_or_when_flushed() -> None:
    def fresh() -> Accumulator:
        records = Accumulator(batch_bytes=300, linger_ms=5, delivery_timeout_ms=50)
        records.add(T0, Draft.of(0, None, b"x" * 100, (), 0), 0)
        return records

    def due(records: Accumulator, now: int) -> bool:
        return bool(records.take(now, lambda _: 1, 1_000)[0])

    assert fresh().next_deadline() == 5
    assert not due(fresh(), 4)
    assert due(fresh(), 5)
    full = fresh()
    assert full.add(T0, Draft.of(0, None, b"x" * 200, (), 1), 0)
    assert due(full, 0)
    flushed = fresh()
    flushed.flush(0)
    assert due(flushed, 0)


def test_batches_without_a_leader_wait_and_name_their_topic() -> None:
    records = Accumulator(batch_bytes=300, linger_ms=0, delivery_timeout_ms=50)
    records.add(T0, Draft.of(0, None, b"x", (), 0), 0)
    assert records.take(0, lambda _: None, 1_000) == ({}, ["t"])
    assert [batch.partition for batch in records.expired(50)] == [T0]


def test_requests_are_bounded_in_size() -> None:
    records = Accumulator(batch_bytes=300, linger_ms=0, delivery_timeout_ms=50)
    for partition in range(4):
        records.add(TopicPartition("t", partition), Draft.of(0, None, b"x" * 100, (), 0), 0)
    groups = records.take(0, lambda _: 1, 450)[0][1]
    assert [len(group) for group in groups] == [2, 2]
