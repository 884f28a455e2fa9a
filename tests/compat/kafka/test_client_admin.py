"""Ottla's admin client against a cluster."""

import asyncio

import pytest
from peers.clusters import fresh, with_client

from ottla.client.admin import HIGH_WATERMARK, Admin, NewTopic, settled
from ottla.client.client import Client
from ottla.client.configs import ConfigChange, ConfigOperation, ConfigSource, Resource, ResourceType
from ottla.client.core.names import TopicPartition
from ottla.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from ottla.client.producer import Producer
from ottla.rpc.errors import Declined
from ottla.wire.errors import Error

WAIT_MS = 60_000


def refusal(outcome: object) -> Error:
    assert isinstance(outcome, Declined)
    assert outcome.broker is not None
    return outcome.error


def test_topic_from_birth_to_death(bootstrap: str) -> None:
    name = fresh("life")

    async def work(client: Client) -> None:
        admin = Admin(client)
        made = settled(await admin.create_topics([NewTopic(name, 3, 1, {"retention.ms": "60000"})]))[name]
        assert (made.partitions, made.replication_factor) == (3, 1)
        topic = await admin.describe_topic(name, timeout_ms=WAIT_MS)
        assert topic.topic_id == made.topic_id
        assert [partition.index for partition in topic.partitions] == [0, 1, 2]
        assert name in await admin.list_topics()
        assert await admin.create_partitions({name: 5}) == {name: None}
        assert await admin.delete_topics([name]) == {name: None}
        while name in await admin.list_topics():
            await asyncio.sleep(0.05)

    with_client(bootstrap, work)


def test_refusals_come_one_by_one_with_their_codes(bootstrap: str) -> None:
    name = fresh("refused")

    async def work(client: Client) -> None:
        admin = Admin(client)
        topics = [NewTopic(name, 2), NewTopic("no good"), NewTopic(name + "x", 1, 1, {"retention.ms": "long"})]
        outcomes = await admin.create_topics(topics)
        assert not isinstance(outcomes[name], Exception)
        assert refusal(outcomes["no good"]) is Error.INVALID_TOPIC_EXCEPTION
        assert refusal(outcomes[name + "x"]) is Error.INVALID_CONFIG
        again = await admin.create_topics([NewTopic(name), NewTopic(name + "y", 1, 30)])
        assert refusal(again[name]) is Error.TOPIC_ALREADY_EXISTS
        assert refusal(again[name + "y"]) is Error.INVALID_REPLICATION_FACTOR
        assert refusal((await admin.create_partitions({name: 1}))[name]) is Error.INVALID_PARTITIONS
        assert refusal((await admin.delete_topics(["absent"]))["absent"]) is Error.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(Declined, match=r"topic absent, broker .*UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.describe_topic("absent")

    with_client(bootstrap, work)


def test_checking_only_changes_nothing(bootstrap: str) -> None:
    name = fresh("dry")

    async def work(client: Client) -> None:
        admin = Admin(client)
        settled(await admin.create_topics([NewTopic(name, 2)], validate_only=True))
        assert name not in await admin.list_topics()

    with_client(bootstrap, work)


def test_settings_are_read_set_and_unset(bootstrap: str) -> None:
    name = fresh("settings")
    resource = Resource(ResourceType.TOPIC, name)

    async def work(client: Client) -> None:
        admin = Admin(client)
        settled(await admin.create_topics([NewTopic(name, 1)]))
        await admin.describe_topic(name, timeout_ms=WAIT_MS)  # Kafka's broker answers before it knows of the topic.

        async def segment_ms() -> tuple[str | None, ConfigSource]:
            entry = settled(await admin.describe_configs([resource], names=["segment.ms"]))[resource][0]
            return entry.value, entry.source

        before = await segment_ms()
        assert before[1] is ConfigSource.DEFAULT
        assert await admin.alter_configs({resource: [ConfigChange("segment.ms", ConfigOperation.SET, "1234")]}) == {
            resource: None
        }
        while await segment_ms() != ("1234", ConfigSource.TOPIC):
            await asyncio.sleep(0.05)
        wrong = await admin.alter_configs({resource: [ConfigChange("segment.ms", ConfigOperation.SET, "x")]})
        assert refusal(wrong[resource]) is Error.INVALID_CONFIG
        assert await admin.alter_configs({resource: [ConfigChange("segment.ms", ConfigOperation.DELETE)]}) == {
            resource: None
        }
        while await segment_ms() != before:
            await asyncio.sleep(0.05)
        every = settled(await admin.describe_configs([resource], documentation=True))[resource]
        assert {"cleanup.policy", "segment.bytes", "max.message.bytes"} <= {entry.name for entry in every}

    with_client(bootstrap, work)


def test_settings_of_a_broker_come_from_that_broker(bootstrap: str) -> None:
    async def work(client: Client) -> None:
        admin = Admin(client)
        cluster = await admin.describe_cluster()
        assert cluster.controller in {broker.node_id for broker in cluster.brokers}
        node = cluster.brokers[0].node_id
        resource = Resource(ResourceType.BROKER, str(node))
        entries = {entry.name: entry for entry in settled(await admin.describe_configs([resource]))[resource]}
        assert entries["node.id"].value == str(node)
        assert entries["log.retention.hours"].value == "168"

    with_client(bootstrap, work)


def test_offsets_sizes_and_removal_of_records(bootstrap: str) -> None:
    name = fresh("offsets")
    partition = TopicPartition(name, 0)

    async def work(client: Client) -> None:
        admin = Admin(client)
        settled(await admin.create_topics([NewTopic(name, 1)]))
        async with Producer(client) as producer:
            for number in range(10):
                await producer.send(name, b"x" * 100, timestamp=1_000 + 10 * number)

        async def at(moment: int) -> tuple[int, int]:
            return (await admin.list_offsets({partition: moment}))[partition][:2]

        assert [(await at(moment))[0] for moment in (EARLIEST, LATEST)] == [0, 10]
        assert await at(1_045) == (5, 1_050)
        assert await at(9_999) == (-1, -1)
        assert await at(MAX_TIMESTAMP) == (9, 1_090)
        sizes = {one.partition: one.size for each in await admin.describe_log_dirs() for one in each.replicas}
        assert sizes[partition] > 1_000
        assert await admin.delete_records({partition: 4}) == {partition: 4}
        assert (await at(EARLIEST))[0] == 4
        assert await admin.delete_records({partition: HIGH_WATERMARK}) == {partition: 10}
        with pytest.raises(Declined, match="OFFSET_OUT_OF_RANGE"):
            await admin.delete_records({partition: 99})

    with_client(bootstrap, work)
