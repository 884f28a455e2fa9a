"""Transactions of Ottla's producer against a cluster: read, transform and write exactly once."""

import asyncio
from collections.abc import Iterable

import pytest
from peers.clusters import fresh, with_client

from ottla.client.admin import Admin, NewTopic, settled
from ottla.client.client import Client
from ottla.client.consumer import BEGINNING, Consumer, Start
from ottla.client.core.errors import ProducerFenced
from ottla.client.core.names import GroupMetadata, TopicPartition
from ottla.client.group_offsets import committed_offsets, settled_offsets
from ottla.client.offsets import LATEST, list_offsets
from ottla.client.producer import Producer

COUNT, AT_ONCE = 60, 7


async def made(client: Client, *names: str) -> list[TopicPartition]:
    """The only partitions of new topics."""
    partitions = [TopicPartition(fresh(name), 0) for name in names]
    settled(await Admin(client).create_topics([NewTopic(partition.topic, 1) for partition in partitions]))
    return partitions


async def ended(client: Client, *partitions: TopicPartition) -> None:
    """Wait for the markers: an end is answered when it is decided."""
    while True:
        stable = await list_offsets(client, dict.fromkeys(partitions, LATEST), committed=True)
        if stable == await list_offsets(client, dict.fromkeys(partitions, LATEST)):
            return
        await asyncio.sleep(0.01)


async def values(client: Client, partition: TopicPartition, *, committed: bool = True) -> list[int]:
    """All that is there now, without what was aborted unless asked for."""
    await ended(client, partition)
    end = (await list_offsets(client, {partition: LATEST}))[partition].offset
    found: list[int] = []
    async with Consumer(client, committed=committed) as consumer:
        await consumer.assign({partition: BEGINNING})
        while consumer.position(partition) < end:
            found += [int(record.value) for record in await consumer.poll(timeout_ms=200)]
    return found


async def progress(client: Client, group: str, partition: TopicPartition) -> int:
    """The offset that the group has committed."""
    offsets = (await settled_offsets(client, [group], [partition]))[group]
    assert isinstance(offsets, dict), offsets
    return offsets[partition].offset if partition in offsets else 0


def chunks(numbers: list[int]) -> Iterable[list[int]]:
    return (numbers[start : start + AT_ONCE] for start in range(0, len(numbers), AT_ONCE))


class CrashError(Exception):
    """What a program does in the middle of a transaction."""


async def double(client: Client, source: TopicPartition, target: TopicPartition, group: str, *, crashing: bool) -> None:
    """Twice each number, from where the group has come to; now and then the program fails half-way through."""
    group_metadata = GroupMetadata(group)
    async with (
        Producer(client, transactional_id=group, linger_ms=0) as producer,
        Consumer(client, fetch_wait_ms_max=20) as consumer,
    ):
        position, attempts = await progress(client, group, source), 0
        while position < COUNT:
            await consumer.assign({source: Start(offset=position)})
            records = (await consumer.poll(timeout_ms=5_000))[:AT_ONCE]
            attempts += 1
            try:
                async with producer.transaction() as transaction:
                    for record in records:
                        producer.send(target.topic, b"%d" % (2 * int(record.value)), partition=0)
                    await producer.flush()
                    await transaction.send_offsets({source: records[-1].offset + 1}, group_metadata)
                    if crashing and attempts % 3 == 2:
                        raise CrashError
            except CrashError:
                continue
            position = records[-1].offset + 1


def test_read_transform_and_write_exactly_once(bootstrap: str) -> None:
    """I12: offsets and results count together, whatever is aborted between."""

    async def work(client: Client) -> None:
        source, target = await made(client, "source", "target")
        async with Producer(client) as feeder:
            for number in range(COUNT):
                feeder.send(source.topic, b"%d" % number, partition=0)
        group = fresh("double")
        await double(client, source, target, group, crashing=True)
        assert await values(client, target) == [2 * number for number in range(COUNT)]
        assert len(await values(client, target, committed=False)) > COUNT, "something was aborted"
        assert await progress(client, group, source) == COUNT

    with_client(bootstrap, work)


def test_what_a_fenced_producer_has_open_is_aborted(bootstrap: str) -> None:
    async def work(client: Client) -> None:
        (target,) = await made(client, "target")
        transactional_id = fresh("id")
        async with Producer(client, transactional_id=transactional_id, linger_ms=0) as zombie:
            zombie.transactions.begin()
            await zombie.send(target.topic, b"1")
            async with Producer(client, transactional_id=transactional_id) as heir:
                with pytest.raises(ProducerFenced, match="Another producer uses the id"):
                    await zombie.transactions.commit()
                async with heir.transaction():
                    heir.send(target.topic, b"2")
            with pytest.raises(ProducerFenced):
                zombie.transactions.begin()
        assert await values(client, target) == [2]

    with_client(bootstrap, work)


def test_a_transaction_that_takes_too_long_can_be_done_again(bootstrap: str) -> None:
    """In version 2 who aborts after the coordinator did gets the new epoch."""

    async def work(client: Client) -> None:
        (target,) = await made(client, "target")
        async with Producer(client, transactional_id=fresh("id"), transaction_timeout_ms=1, linger_ms=0) as producer:
            producer.transactions.begin()
            await producer.send(target.topic, b"1")
            await ended(client, target)
            await producer.transactions.abort()
        assert await values(client, target) == []

    with_client(bootstrap, work)


def test_many_small_transactions_in_a_row(bootstrap: str) -> None:
    """The next begins while the markers of the last are on their way."""

    async def work(client: Client) -> None:
        first, second = await made(client, "first", "second")
        numbers = list(range(COUNT))
        async with Producer(client, transactional_id=fresh("id"), linger_ms=0) as producer:
            for chunk in chunks(numbers):
                async with producer.transaction():
                    for number in chunk:
                        producer.send(first.topic, b"%d" % number)
                        producer.send(second.topic, b"%d" % number)
        assert await values(client, first) == await values(client, second) == numbers

    with_client(bootstrap, work)


def test_the_first_offset_of_a_group_is_waited_for_while_its_transaction_is_open(bootstrap: str) -> None:
    """Asked for all of a group's offsets, neither Kafka nor Ottla says that there will be one."""

    async def work(client: Client) -> None:
        (source,) = await made(client, "source")
        group = fresh("group")
        async with Producer(client, transactional_id=group) as producer:
            async with producer.transaction() as transaction:
                await transaction.send_offsets({source: 7}, GroupMetadata(group))
                assert (await committed_offsets(client, [group]))[group] == {}
                asked = asyncio.ensure_future(settled_offsets(client, [group], [source]))
                done, _ = await asyncio.wait([asked], timeout=0.3)
                assert not done
            offsets = (await asked)[group]
        assert isinstance(offsets, dict)
        assert offsets[source].offset == 7

    with_client(bootstrap, work)
