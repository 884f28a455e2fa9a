"""Ottla's producer and consumer against a cluster, and beside librdkafka."""

import asyncio
from typing import Any

import confluent_kafka
import pytest
from peers.clusters import fresh, with_client

from ottla.client.admin import Admin, NewTopic, settled
from ottla.client.client import Client
from ottla.client.consumer import BEGINNING, END, Consumer, Received, Start
from ottla.client.core.errors import DeliveryFailed
from ottla.client.core.names import TopicPartition
from ottla.client.core.partitioner import partition_of_key
from ottla.client.offsets import LATEST, list_offsets
from ottla.client.producer import Producer
from ottla.kernel import Codec
from ottla.rpc.errors import Declined

QUIET = {"log_level": 0}


async def made(client: Client, name: str, partitions: int = 1, **settings: str) -> str:
    topic = fresh(name)
    dotted = {key.replace("_", "."): value for key, value in settings.items()}
    settled(await Admin(client).create_topics([NewTopic(topic, partitions, 1, dotted)]))
    return topic


async def read(client: Client, topic: str, start: Start = BEGINNING, **options: Any) -> list[Received]:
    """Everything from the start to where the topic ends now."""
    known = await client.metadata.topic(topic, timeout_ms=10_000)
    partitions = [TopicPartition(topic, index) for index in range(len(known.partitions))]
    ends = await list_offsets(client, dict.fromkeys(partitions, LATEST), committed=options.get("committed", False))
    records: list[Received] = []
    async with Consumer(client, **options) as consumer:
        await consumer.assign(dict.fromkeys(partitions, start))
        while any(consumer.position(partition) < end.offset for partition, end in ends.items()):
            records += await consumer.poll(timeout_ms=100)
    return records


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_records_come_back_as_they_were_sent(bootstrap: str, codec: Codec, acks: int) -> None:
    async def work(client: Client) -> None:
        topic = await made(client, "round")
        headers = [("trace", b"\xff\0"), ("trace", b"again"), ("none", None)]
        sent = [(b"key-%d" % n, b"value" * n, 1_700_000_000_000 + n) for n in range(50)]
        sent += [(b"tombstone", None, 1_700_000_000_100), (None, b"", 1_700_000_000_101)]  # type: ignore[list-item]
        async with Producer(client, codec=codec, acks=acks) as producer:
            futures = [
                producer.send(topic, value, key=key, headers=headers, timestamp=timestamp)
                for key, value, timestamp in sent
            ]
        assert [future.result().offset for future in futures] == ([-1] * 52 if acks == 0 else list(range(52)))
        while len(received := await read(client, topic)) < len(sent):  # acks=0: they may still be on their way.
            await asyncio.sleep(0.05)
        assert [(one.key, one.value, one.timestamp) for one in received] == sent
        assert {one.headers for one in received} == {tuple(headers)}

    with_client(bootstrap, work)


@pytest.mark.parametrize("sessions", [True, False])
def test_many_partitions_are_read_completely_and_in_order(bootstrap: str, sessions: bool) -> None:
    async def work(client: Client) -> None:
        topic = await made(client, "many", 20)
        async with Producer(client, batch_bytes=2_000, linger_ms=1) as producer:
            for number in range(5_000):
                producer.send(topic, b"%d" % number, key=b"%d" % (number % 97))
        received = await read(client, topic, sessions=sessions)
        assert sorted(int(one.value) for one in received) == list(range(5_000))
        for key in range(97):
            numbers = [int(one.value) for one in received if one.key == b"%d" % key]
            assert numbers == sorted(numbers)
        assert {one.partition for one in received} == {partition_of_key(b"%d" % key, 20) for key in range(97)}

    with_client(bootstrap, work)


def test_keys_lie_where_librdkafka_puts_them(bootstrap: str) -> None:
    """Its murmur2_random is the partitioner of Kafka's Java clients."""

    async def work(client: Client) -> None:
        topic = await made(client, "keys", 7)
        theirs = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"} | QUIET)
        keys = [bytes(range(n % 251)) + b"%d" % n for n in range(300)]
        for key in keys:
            theirs.produce(topic, b"theirs", key=key)
        await asyncio.to_thread(theirs.flush, 20)
        async with Producer(client) as producer:
            for key in keys:
                producer.send(topic, b"ours", key=key)
        places: dict[bytes, set[int]] = {}
        for one in await read(client, topic):
            places.setdefault(one.key, set()).add(one.partition)
        assert len(places) == 300
        assert all(len(partitions) == 1 for partitions in places.values())

    with_client(bootstrap, work)


def test_start_by_offset_time_and_end(bootstrap: str) -> None:
    async def work(client: Client) -> None:
        topic = await made(client, "start")
        async with Producer(client) as producer:
            for number in range(10):
                await producer.send(topic, b"%d" % number, timestamp=1_000 + number)
        for start, first in [(BEGINNING, 0), (Start(offset=7), 7), (Start(moment=1_004), 4), (END, 10)]:
            assert [one.offset for one in await read(client, topic, start)] == list(range(first, 10))
        assert await read(client, topic, Start(moment=5_000)) == []

    with_client(bootstrap, work)


def test_aborted_and_open_transactions_are_left_out_when_asked(bootstrap: str) -> None:
    def transactions(topic: str) -> confluent_kafka.Producer:
        """Commit, abort, commit, abort, and one left open."""
        for number, commit in enumerate([True, False, True, False, None]):
            settings = {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{number}"}
            producer = confluent_kafka.Producer(settings | QUIET)
            producer.init_transactions(30)
            producer.begin_transaction()
            for each in range(3):
                producer.produce(topic, f"{commit}-{number}-{each}".encode(), partition=0)
            producer.flush(30)
            if commit is not None:
                (producer.commit_transaction if commit else producer.abort_transaction)(30)
        return producer

    async def work(client: Client) -> None:
        topic = await made(client, "txn")
        still_open = await asyncio.to_thread(transactions, topic)
        expected = [b"True-%d-%d" % (number, each) for number in (0, 2) for each in range(3)]
        async with asyncio.timeout(30):  # The markers follow what was decided.
            while len(committed := await read(client, topic, committed=True)) < len(expected):
                await asyncio.sleep(0.05)
        assert [one.value for one in committed] == expected
        assert len(await read(client, topic)) == 15
        await asyncio.to_thread(still_open.abort_transaction, 30)

    with_client(bootstrap, work)


def test_batch_over_the_topics_limit_is_split_and_a_single_record_refused(bootstrap: str) -> None:
    async def work(client: Client) -> None:
        topic = await made(client, "limit", max_message_bytes="2000")
        async with Producer(client, linger_ms=50) as producer:
            small = [producer.send(topic, b"x" * 300) for _ in range(20)]
            large = producer.send(topic, b"x" * 3_000)
            with pytest.raises(DeliveryFailed, match=r"max\.message\.bytes"):
                await large
            assert [(await future).offset for future in small] == list(range(20))

    with_client(bootstrap, work)


def test_refused_record_does_not_take_its_neighbours_along(bootstrap: str) -> None:
    async def work(client: Client) -> None:
        topic = await made(client, "compacted", cleanup_policy="compact")
        async with Producer(client, linger_ms=50) as producer:
            good = [producer.send(topic, b"x", key=b"%d" % n) for n in range(2)]
            bad = producer.send(topic, b"x")
            good.append(producer.send(topic, b"x", key=b"2"))
            with pytest.raises(DeliveryFailed, match="INVALID_RECORD"):
                await bad
            assert [(await future).offset for future in good] == [0, 1, 2]

    with_client(bootstrap, work)


def test_position_that_is_gone_is_an_error_with_the_offset(bootstrap: str) -> None:
    async def work(client: Client) -> None:
        topic = await made(client, "gone")
        async with Consumer(client) as consumer:
            await consumer.assign({TopicPartition(topic, 0): Start(offset=5)})
            with pytest.raises(Declined, match="offset 5 is not in the log"):
                await consumer.poll(timeout_ms=10_000)

    with_client(bootstrap, work)


def test_consumer_waiting_at_the_end_gets_what_comes(bootstrap: str) -> None:
    async def work(client: Client) -> None:
        topic = await made(client, "tail", 3)
        async with Consumer(client) as consumer, Producer(client) as producer:
            await consumer.assign({TopicPartition(topic, index): END for index in range(3)})
            assert await consumer.poll(timeout_ms=1_500) == []
            assert consumer.end(TopicPartition(topic, 0)) == 0
            for number in range(5):
                await producer.send(topic, b"%d" % number, partition=number % 3)
                received = await consumer.poll(timeout_ms=10_000)
                assert [one.value for one in received] == [b"%d" % number]

    with_client(bootstrap, work)


def test_topic_made_anew_under_its_name_is_followed(bootstrap: str) -> None:
    """KAFKA-12257: ids tell the new topic from the old."""

    async def work(client: Client) -> None:
        topic = await made(client, "again")
        async with Producer(client) as producer:
            await producer.send(topic, b"old")
            settled(await Admin(client).delete_topics([topic]))
            while topic in await client.metadata.all_topics():
                await asyncio.sleep(0.05)
            settled(await Admin(client).create_topics([NewTopic(topic, 1)]))
            await client.metadata.topic(topic, timeout_ms=10_000)
            assert (await producer.send(topic, b"new")).offset == 0
        assert [one.value for one in await read(client, topic)] == [b"new"]

    with_client(bootstrap, work)
