"""Consumers of a group, with a real node, in virtual time."""

import asyncio
from collections.abc import Callable

import pytest

from ottla.client.client import Client
from ottla.client.consumer import END, Received
from ottla.client.core.errors import MembershipLost
from ottla.client.core.names import TopicPartition
from ottla.client.group_consumer import GroupConsumer
from ottla.client.group_offsets import committed_offsets
from ottla.client.producer import Producer
from ottla.rpc.errors import ClientError
from ottla.sim.machine.network import Weather
from simulated_node import simulated

TOPICS = {"t": 4}
PARTITIONS = [TopicPartition("t", number) for number in range(4)]


async def produce(client: Client, count: int, first: int = 0) -> None:
    async with Producer(client, linger_ms=0) as producer:
        await asyncio.gather(
            *(producer.send("t", b"%d" % number, partition=number % 4) for number in range(first, first + count))
        )


async def read_until(consumer: GroupConsumer, done: Callable[[list[Received]], bool]) -> list[Received]:
    received: list[Received] = []
    while not done(received):
        received += await consumer.poll(timeout_ms=200)
    return received


def numbers(received: list[Received]) -> list[int]:
    return sorted(int(record.value) for record in received)


def test_one_consumer_reads_everything_and_its_heir_what_it_did_not_commit() -> None:
    async def work(client: Client) -> None:
        await produce(client, 40)
        async with GroupConsumer(client, "g", ["t"]) as first:
            assert numbers(await read_until(first, lambda got: len(got) == 40)) == list(range(40))
            await first.commit()
            await produce(client, 8, first=40)
            await read_until(first, lambda got: len(got) == 8)
        async with GroupConsumer(client, "g", ["t"]) as heir:
            assert numbers(await read_until(heir, lambda got: len(got) == 8)) == list(range(40, 48))

    simulated(work, TOPICS)


def test_members_share_partitions_and_take_over_without_reading_twice() -> None:
    """Before a partition goes to another member, what is finished of it is committed."""

    async def work(client: Client) -> None:
        await produce(client, 400)
        async with GroupConsumer(client, "g", ["t"]) as first:
            got = await read_until(first, lambda got: len(got) >= 40)
            async with GroupConsumer(client, "g", ["t"]) as second:
                while len(first.assignment) != 2 or len(second.assignment) != 2:
                    got += await first.poll(records_max=10, timeout_ms=100)
                    got += await second.poll(records_max=10, timeout_ms=100)
                assert sorted(first.assignment + second.assignment) == PARTITIONS
                while len(got) < 400:
                    got += await first.poll(timeout_ms=50)
                    got += await second.poll(timeout_ms=50)
                await second.commit()
            await read_until(first, lambda _: len(first.assignment) == 4)
            await produce(client, 4, first=400)
            got += await read_until(first, lambda new: len(new) == 4)
            assert numbers(got) == list(range(404))

    simulated(work, TOPICS)


def test_where_the_group_has_no_offset_it_begins_at_the_start_that_was_given() -> None:
    async def work(client: Client) -> None:
        await produce(client, 8)
        async with GroupConsumer(client, "g", ["t"], start=END) as consumer:
            await read_until(consumer, lambda _: consumer.is_settled)
            await produce(client, 4, first=8)
            assert numbers(await read_until(consumer, lambda got: len(got) == 4)) == [8, 9, 10, 11]

    simulated(work, TOPICS)


def test_who_works_too_long_is_put_out_and_told_and_joins_again() -> None:
    async def work(client: Client) -> None:
        await produce(client, 40)
        async with GroupConsumer(client, "g", ["t"], rebalance_timeout_ms=2_000) as slow:
            await read_until(slow, lambda got: len(got) == 40)
            async with GroupConsumer(client, "g", ["t"]) as other:
                got = await read_until(other, lambda got: len(got) == 40)
                assert numbers(got) == list(range(40))
                with pytest.raises(MembershipLost, match="group g: this consumer is not a member any more"):
                    await slow.poll(timeout_ms=100)
                while len(slow.assignment) != 2 or len(other.assignment) != 2:
                    await slow.poll(timeout_ms=100)
                    await other.poll(timeout_ms=100)

    simulated(work, TOPICS)


def test_a_commit_of_who_was_put_out_is_refused_with_what_happened() -> None:
    async def work(client: Client) -> None:
        await produce(client, 40)
        async with GroupConsumer(client, "g", ["t"], rebalance_timeout_ms=2_000) as slow:
            await read_until(slow, lambda got: len(got) == 40)
            async with GroupConsumer(client, "g", ["t"]) as other:
                await read_until(other, lambda got: len(got) == 40)
                await other.commit()
                with pytest.raises(MembershipLost):
                    await slow.commit()

    simulated(work, TOPICS)


def test_a_long_handler_keeps_its_partitions() -> None:
    """Heartbeats do not wait for it, and nobody else wants what it has."""

    async def work(client: Client) -> None:
        await produce(client, 4)
        async with GroupConsumer(client, "g", ["t"]) as consumer:
            await read_until(consumer, lambda got: len(got) == 4)
            await asyncio.sleep(30 * 60)
            await consumer.commit()
            offsets = (await committed_offsets(client, ["g"]))["g"]
            assert isinstance(offsets, dict)
            assert [offsets[one].offset for one in PARTITIONS] == [1, 1, 1, 1]

    simulated(work, TOPICS)


def test_every_record_is_read_through_a_weather_of_resets() -> None:
    async def work(client: Client) -> None:
        got: list[Received] = []
        async with GroupConsumer(client, "g", ["t"]) as first, GroupConsumer(client, "g", ["t"]) as second:
            for burst in range(10):
                await produce(client, 20, first=20 * burst)
                await asyncio.sleep(3)
                for consumer in (first, second):
                    try:
                        got += await consumer.poll(timeout_ms=500)
                        await consumer.commit()
                    except ClientError:
                        continue
            while len({record.value for record in got}) < 200:
                for consumer in (first, second):
                    try:
                        got += await consumer.poll(timeout_ms=500)
                    except ClientError:
                        continue
        assert sorted({int(record.value) for record in got}) == list(range(200))

    simulated(work, TOPICS, weather=Weather(reset=0.02, split=0.1))
