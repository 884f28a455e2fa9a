"""The producer's transactions with a real node, in virtual time, in both versions and through a weather of resets."""

import asyncio

import pytest

from ottla.client.client import Client
from ottla.client.consumer import BEGINNING, Consumer
from ottla.client.core.errors import ProducerFenced
from ottla.client.core.names import GroupMetadata, TopicPartition
from ottla.client.group_offsets import committed_offsets
from ottla.client.offsets import LATEST, list_offsets
from ottla.client.producer import Producer
from ottla.sim.machine.network import Weather
from simulated_node import simulated

TOPICS = {"t": 2}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = "g"
both_versions = pytest.mark.parametrize("version", [1, 2], ids=["version 1", "version 2"])


async def committed(client: Client, partition: TopicPartition) -> list[bytes]:
    """What readers see when every transaction is decided."""
    while True:
        stable = await list_offsets(client, {partition: LATEST}, committed=True)
        ends = await list_offsets(client, {partition: LATEST})
        if stable[partition].offset == ends[partition].offset:
            break
        await asyncio.sleep(0.05)
    found: list[bytes] = []
    async with Consumer(client, committed=True) as consumer:
        await consumer.assign({partition: BEGINNING})
        while consumer.position(partition) < ends[partition].offset:
            found += [record.value for record in await consumer.poll(timeout_ms=100)]
    return found


async def offset(client: Client) -> int:
    offsets = (await committed_offsets(client, [GROUP]))[GROUP]
    assert isinstance(offsets, dict), offsets
    return offsets[T0].offset if T0 in offsets else -1


async def write(producer: Producer, number: int, *, fail: bool = False) -> None:
    """One transaction: a record in each partition, and the offset after it."""
    async with producer.transaction() as transaction:
        for partition in (T0, T1):
            await producer.send("t", b"%d" % number, partition=partition.partition)
        await transaction.send_offsets({T0: number + 1}, GroupMetadata(GROUP))
        if fail:
            raise ZeroDivisionError


@both_versions
def test_what_is_committed_is_seen_with_its_offsets_and_nothing_else(version: int) -> None:
    async def work(client: Client) -> None:
        async with Producer(client, transactional_id="id", linger_ms=0) as producer:
            for number in range(6):
                fails = number % 3 == 1
                if fails:
                    with pytest.raises(ZeroDivisionError):
                        await write(producer, number, fail=True)
                else:
                    await write(producer, number)
        assert await committed(client, T0) == await committed(client, T1) == [b"0", b"2", b"3", b"5"]
        assert await offset(client) == 6

    simulated(work, TOPICS, version=version)


@both_versions
def test_who_takes_the_id_fences_the_one_before(version: int) -> None:
    async def work(client: Client) -> None:
        async with Producer(client, transactional_id="id", linger_ms=0) as zombie:
            zombie.transactions.begin()
            await zombie.send("t", b"zombie", partition=0)
            async with Producer(client, transactional_id="id", linger_ms=0) as heir:
                with pytest.raises(ProducerFenced):
                    await zombie.transactions.commit()
                await write(heir, 7)
        assert await committed(client, T0) == [b"7"]

    simulated(work, TOPICS, version=version)


@both_versions
@pytest.mark.parametrize("seed", range(3))
def test_each_transaction_counts_once_through_resets(version: int, seed: int) -> None:
    """I12: whatever answer is lost, everything is asked again, and none of it is done twice."""

    async def work(client: Client) -> None:
        expected: list[bytes] = []
        async with Producer(client, transactional_id="id", linger_ms=0) as producer:
            for number in range(10):
                await write(producer, number)
                expected.append(b"%d" % number)
        assert await committed(client, T0) == await committed(client, T1) == expected

    simulated(work, TOPICS, version=version, weather=Weather(reset=0.03, split=0.1), seed=seed)
