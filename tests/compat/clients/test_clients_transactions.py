"""Transactions of real clients: librdkafka, aiokafka, Kafka's own Java client and its tool."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from nodes.java_tools import JavaTools, java_tools
from nodes.ottla_node import running_node, wait_until
from nodes.topics import Server, Topics
from peers.client import Client

PATIENCE_S = 240.0
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"


def producer(server: Server, transactional_id: str, **settings: Any) -> Producer:
    """One that may begin a transaction."""
    config = {
        "bootstrap.servers": server.bootstrap,
        "transactional.id": transactional_id,
        "log_level": 0,
        "linger.ms": 1,
    }
    made = Producer(config | settings)
    made.init_transactions(PATIENCE_S)
    return made


def consumer(server: Server, group: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )


def values(server: Server, topic: str, isolation: str = "read_committed", partitions: int = 1) -> list[str]:
    """All that can be read now, in the order of each partition."""
    reader = consumer(server, f"reader of {topic}", isolation)
    reader.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found, ended = [], set[int | None]()
    while len(ended) < partitions:
        message = reader.poll(PATIENCE_S)
        assert message is not None, "neither a record nor the end of a partition"
        error = message.error()
        if error is None:
            found.append((message.value() or b"").decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
    reader.close()
    return found


def test_committed_is_seen_and_aborted_is_not(server: Server, topics: Topics) -> None:
    topic = topics.create(server, partitions=2)
    writer = producer(server, topic)
    for number in range(6):
        writer.begin_transaction()
        for index in range(2):
            writer.produce(topic, f"{number}".encode(), partition=index)
        writer.flush()
        if number % 3 == 1:
            writer.abort_transaction(PATIENCE_S)
        else:
            writer.commit_transaction(PATIENCE_S)
    wait_until(lambda: sorted(values(server, topic, partitions=2)) == sorted("0235" * 2), "what was committed")
    assert sorted(values(server, topic, "read_uncommitted", partitions=2)) == sorted("012345" * 2)


def test_offsets_count_when_the_transaction_does(server: Server, topics: Topics) -> None:
    topic, group = topics.create(server), topics.name()
    writer, reader = producer(server, topic), consumer(server, group)
    reader.subscribe([topic])

    def committed() -> int:
        offset: int = reader.committed([TopicPartition(topic, 0)], PATIENCE_S)[0].offset
        return offset

    wait_until(lambda: reader.poll(0.1) is not None and bool(reader.assignment()), "the group has its partition")
    for offset, ends, expected in ((5, writer.commit_transaction, 5), (9, writer.abort_transaction, 5)):
        writer.begin_transaction()
        writer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, offset)], reader.consumer_group_metadata(), PATIENCE_S
        )
        ends(PATIENCE_S)
        wait_until(lambda expected=expected: committed() == expected, f"{expected} is committed")
    reader.close()


def test_a_zombie_is_fenced(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    zombie = producer(server, topic)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie")
    zombie.flush()
    heir = producer(server, topic)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(PATIENCE_S)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    heir.begin_transaction()
    heir.produce(topic, b"heir")
    heir.commit_transaction(PATIENCE_S)
    wait_until(lambda: values(server, topic) == ["heir"], "what the heir committed")


def test_aiokafka(ottla: Server, topics: Topics) -> None:
    """Requests of Kafka 2.x: partitions are added before anything is written to them."""
    topic = topics.create(ottla)

    async def work() -> None:
        writer = AIOKafkaProducer(bootstrap_servers=ottla.bootstrap, transactional_id=topic)
        await writer.start()
        try:
            async with writer.transaction():
                await writer.send_and_wait(topic, b"committed")
            await writer.begin_transaction()
            await writer.send_and_wait(topic, b"aborted")
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send_and_wait(topic, b"too")
        finally:
            await writer.stop()

    asyncio.run(work())
    wait_until(lambda: values(ottla, topic) == ["committed", "too"], "what was committed")


@pytest.fixture(scope="module")
def tools(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaTools]:
    with java_tools(kafka_jars, tmp_path_factory.mktemp("tools")) as started:
        yield started


def feed(server: Server, topic: str, total: int) -> list[str]:
    """Numbers; also what a copy of them must hold."""
    writer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    numbers = [str(number) for number in range(total)]
    for number in numbers:
        writer.produce(topic, number.encode(), partition=0)
    assert writer.flush(PATIENCE_S) == 0
    return numbers


def copy(tools: JavaTools, server: Server, source: str, target: str, total: int) -> None:
    """Kafka's own test program: Java's client, random aborts, offsets in the transaction."""
    tools.run(
        COPIER,
        *("--broker-list", server.bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--max-messages", str(total), "--consumer-group", target),
        *("--transactional-id", target, "--transaction-size", "10", "--enable-random-aborts"),
    )


def test_transactional_message_copier(ottla: Server, topics: Topics, tools: JavaTools) -> None:
    source, target = topics.create(ottla), topics.create(ottla)
    numbers = feed(ottla, source, 200)
    copy(tools, ottla, source, target, 200)
    assert values(ottla, target) == numbers


def test_exactly_once_through_kills(tmp_path: Path, topics: Topics, tools: JavaTools) -> None:
    """The node is killed twice in the middle of it; what comes out is what went in, in order (I12)."""
    total = 3_000
    with running_node(tmp_path) as node, ThreadPoolExecutor(1) as aside:
        source, target = topics.name(), topics.name()
        Client(node.bootstrap).create_topics({source: {}, target: {}}, {source: 1, target: 1})
        numbers = feed(node, source, total)
        copied = aside.submit(copy, tools, node, source, target, total)
        for share in (0.1, 0.4):
            wait_until(partial(_has, node, target, int(total * share)), "the copier gets on")
            node.kill()
            node.start()
        copied.result(PATIENCE_S)
        assert values(node, target) == numbers


def _has(server: Server, topic: str, count: int) -> bool:
    return len(values(server, topic)) >= count


def test_transactions_command(ottla: Server, topics: Topics, tools: JavaTools) -> None:
    """Lists, describes and ends what a producer left open."""
    topic = topics.create(ottla)
    left = producer(ottla, topic)
    left.begin_transaction()
    left.produce(topic, b"left open")
    left.flush()

    def told(*arguments: str) -> str:
        return tools.run(TRANSACTIONS, "--bootstrap-server", ottla.bootstrap, *arguments).stdout

    assert [line.split()[3] for line in told("list").splitlines() if line.startswith(topic)] == ["Ongoing"]
    described = told("describe", "--transactional-id", topic)
    assert f"{topic}-0" in described
    producers = told("describe-producers", "--topic", topic, "--partition", "0").splitlines()
    assert producers[1].split()[-1] == "0", "where the transaction begins"
    assert values(ottla, topic) == []
    told("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    after = told("describe-producers", "--topic", topic, "--partition", "0").splitlines()
    assert after[1].split()[-1] == "None"
