"""Topics and settings, made, changed and removed by the clients' own admin interfaces."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioTopic
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from drivers import DRIVERS, Driver, Sent
from drivers.confluent import Confluent
from kafka import KafkaAdminClient
from nodes.ottla_node import PATIENCE_S, wait_until
from nodes.topics import KEEPING, Server, Topics

T = 1_700_000_000_000
TIMEOUT_S = 30
KEPT = KEEPING["log.retention.ms"]

Answer = TypeVar("Answer")


def admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap})


def refusal(server: Server, topic: NewTopic) -> int:
    """Kafka's error code for an attempt to make a topic."""
    client = admin(server)
    with pytest.raises(KafkaException) as refused:
        client.create_topics([topic])[topic.topic].result(TIMEOUT_S)
    code: int = refused.value.args[0].code()
    return code


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda one: one.name)
def test_topic_is_made_when_it_is_first_used(server: Server, topics: Topics, driver: Driver) -> None:
    topic = topics.name()
    records = [Sent(b"k", b"v", T)]
    driver.produce(server.bootstrap, topic, records)
    assert [one.as_sent for one in driver.consume(server.bootstrap, topic, 1)] == records


def test_what_cannot_be_a_topic_is_refused(server: Server, topics: Topics) -> None:
    existing = topics.create(server)
    assert refusal(server, NewTopic(existing, 1, 1)) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refusal(server, NewTopic("no/slash", 1, 1)) == KafkaError.TOPIC_EXCEPTION
    assert refusal(server, NewTopic(topics.name(), 1, 3)) == KafkaError.INVALID_REPLICATION_FACTOR
    assert refusal(server, NewTopic(topics.name(), 0, 1)) == KafkaError.INVALID_PARTITIONS
    wrong_value = NewTopic(topics.name(), 1, 1, config={"retention.ms": "soon"})
    assert refusal(server, wrong_value) == KafkaError.INVALID_CONFIG
    wrong_key = NewTopic(topics.name(), 1, 1, config={"no.such.setting": "1"})
    assert refusal(server, wrong_key) == KafkaError.INVALID_CONFIG


def test_validation_alone_makes_nothing(server: Server, topics: Topics) -> None:
    topic = topics.name()
    client = admin(server)
    client.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic].result(TIMEOUT_S)
    assert topic not in client.list_topics(timeout=TIMEOUT_S).topics


def test_partitions_are_added(server: Server, topics: Topics) -> None:
    topic = topics.create(server, partitions=2)
    client = admin(server)
    client.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)

    def seen() -> list[tuple[int, int]]:
        partitions = client.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S).partitions
        return [(one.id, len(one.isr)) for one in partitions]

    wait_until(lambda: len(seen()) == 5, "the new partitions are seen")
    assert seen() == [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]
    with pytest.raises(KafkaException) as refused:
        client.create_partitions([NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS


def test_topic_made_again_is_another(server: Server, topics: Topics) -> None:
    """KIP-516: it has a new id, and nothing of the old one's records or settings."""
    topic = topics.create(server, retention_ms="1000000")
    client = admin(server)
    Confluent().produce(server.bootstrap, topic, [Sent(None, b"old", T)] * 3)
    first = topic_id(client, topic)
    client.delete_topics([topic])[topic].result(TIMEOUT_S)
    persistently(lambda: client.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S))
    assert topic_id(client, topic) != first
    assert Confluent().produce(server.bootstrap, topic, [Sent(None, b"new", T)]) == [0]
    assert [one.value for one in Confluent().consume(server.bootstrap, topic, 1)] == [b"new"]
    assert described(client, ResourceType.TOPIC, topic)["retention.ms"].value == KEPT


def topic_id(client: AdminClient, topic: str) -> str:
    return persistently(lambda: str(client.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S).topic_id))


def persistently(ask: Callable[[], Answer]) -> Answer:
    """Kafka answers before its brokers have heard of what was decided."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as refused:
            behind = (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.UNKNOWN_TOPIC_OR_PART)
            if refused.args[0].code() not in behind or time.monotonic() > deadline:
                raise


def described(client: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    entries: dict[str, ConfigEntry] = client.describe_configs([resource])[resource].result(TIMEOUT_S)
    return entries


def test_settings_of_a_topic_are_described_and_changed(server: Server, topics: Topics) -> None:
    topic = topics.create(server, retention_ms="1000000")
    client = admin(server)
    before = described(client, ResourceType.TOPIC, topic)
    assert before["retention.ms"].value == "1000000"
    assert ConfigSource(before["retention.ms"].source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert ConfigSource(before["max.message.bytes"].source) is ConfigSource.DEFAULT_CONFIG
    assert set(before["retention.ms"].synonyms) >= {"retention.ms"}
    alter(client, topic, ("cleanup.policy", "compact", AlterConfigOpType.APPEND))
    alter(client, topic, ("retention.ms", None, AlterConfigOpType.DELETE))

    def seen() -> tuple[str | None, str | None]:
        after = described(client, ResourceType.TOPIC, topic)
        return after["cleanup.policy"].value, after["retention.ms"].value

    wait_until(lambda: seen() == ("delete,compact", KEPT), "the changes are seen")
    with pytest.raises(KafkaException) as refused:
        alter(client, topic, ("retention.ms", "never", AlterConfigOpType.SET))
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def alter(client: AdminClient, topic: str, change: tuple[str, str | None, AlterConfigOpType]) -> None:
    name, value, operation = change
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def test_changed_setting_works_at_once(ottla: Server, topics: Topics) -> None:
    topic = topics.create(ottla)
    large = [Sent(None, b"v" * 5_000, T)]
    Confluent().produce(ottla.bootstrap, topic, large)
    alter(admin(ottla), topic, ("max.message.bytes", "1000", AlterConfigOpType.SET))
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        Confluent().produce(ottla.bootstrap, topic, large)


def test_thousand_partitions(ottla: Server, topics: Topics) -> None:
    topic = topics.create(ottla, partitions=1000)
    client = admin(ottla)
    partitions = client.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S).partitions
    assert [one.id for one in partitions] == list(range(1000))
    sent = [Sent(b"%d" % number, b"v", T) for number in range(2000)]
    Confluent().produce(ottla.bootstrap, topic, sent, partition=None)
    consumed = Confluent().consume_all(ottla.bootstrap, topic, partitions=1000, count=2000)
    assert sorted(one.as_sent for one in consumed) == sorted(sent)
    client.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert topic not in client.list_topics(timeout=TIMEOUT_S).topics


def test_admin_interface_of_kafka_python(server: Server, topics: Topics) -> None:
    topic = topics.name()
    client = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    try:
        client.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
        wait_until(lambda: topic in client.list_topics(), "the new topic is seen")
        client.create_partitions({topic: 3})
        wait_until(lambda: len(client.describe_topics([topic])[0]["partitions"]) == 3, "the new partition is seen")
        assert client.describe_cluster()["brokers"]
        client.delete_topics([topic])
    finally:
        client.close()


def test_admin_interface_of_aiokafka(server: Server, topics: Topics) -> None:
    topic = topics.name()

    async def use() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=server.bootstrap)
        await client.start()
        try:
            await client.create_topics([AioTopic(topic, 2, 1)])
            async with asyncio.timeout(PATIENCE_S):
                while topic not in await client.list_topics():
                    await asyncio.sleep(0.01)
            [about] = await client.describe_topics([topic])
            assert len(about["partitions"]) == 2
            await client.delete_topics([topic])
        finally:
            await client.close()

    asyncio.run(use())
