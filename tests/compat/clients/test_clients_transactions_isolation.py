"""What readers of every client see of transactions of every client, at both isolation levels."""

import re

import pytest
from aiokafka.errors import ProducerFenced
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from kafka.errors import ProducerFencedError
from members.clients import MODULES, client_of
from nodes.ottla_node import wait_until
from nodes.topics import Server, Topics
from peers.client import Client

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def ends(server: Server, topic: str) -> tuple[int, int]:
    """The last stable offset and the high watermark."""
    asked = {TopicPartition(topic, 0): OffsetSpec.latest()}
    client = Client(server.bootstrap)
    stable = client.list_offsets(asked, committed=True)[topic, 0].offset
    return stable, client.list_offsets(asked)[topic, 0].offset


def seen(server: Server, topic: str, isolation: str) -> list[str]:
    """The same by all clients."""
    everybody = [client_of(name).read(server.bootstrap, topic, isolation) for name in MODULES]
    assert everybody == [everybody[0]] * len(everybody)
    return everybody[0]


@pytest.mark.parametrize("client", MODULES)
def test_readers_see_what_their_isolation_level_says(server: Server, topics: Topics, client: str) -> None:
    """An open transaction holds back all that follows it; an aborted one is for those who ask for everything."""
    topic = topics.create(server)
    writer = client_of(client).writer(server.bootstrap, topic)
    for value, end in (("committed", writer.commit), ("aborted", writer.abort)):
        writer.begin()
        writer.send(topic, value)
        writer.flush()
        end()
    wait_until(lambda: ends(server, topic) == (4, 4), "two records and their markers")
    writer.begin()
    writer.send(topic, "open")
    writer.flush()
    plain = Producer({"bootstrap.servers": server.bootstrap})
    plain.produce(topic, "plain")
    assert plain.flush(30) == 0

    assert ends(server, topic) == (4, 6), "the transaction that is open begins at 4"
    assert seen(server, topic, COMMITTED) == ["committed"]
    assert seen(server, topic, UNCOMMITTED) == ["committed", "aborted", "open", "plain"]

    writer.commit()
    wait_until(lambda: ends(server, topic) == (7, 7), "a marker ends the transaction")
    assert seen(server, topic, COMMITTED) == ["committed", "open", "plain"]
    writer.close()


@pytest.mark.parametrize("client", MODULES)
def test_zombie_of_every_client_is_fenced(server: Server, topics: Topics, client: str) -> None:
    """Its transaction was aborted when the heir came, and it cannot begin to write again."""
    topic = topics.create(server)
    zombie = client_of(client).writer(server.bootstrap, topic)
    zombie.begin()
    zombie.send(topic, "zombie")
    zombie.flush()
    heir = client_of(client).writer(server.bootstrap, topic)
    with pytest.raises((KafkaException, ProducerFencedError, ProducerFenced)) as refused:
        zombie.commit()
    assert re.search("fenced", repr(refused.value), re.IGNORECASE)
    zombie.close()
    heir.begin()
    heir.send(topic, "heir")
    heir.flush()
    heir.commit()
    wait_until(
        lambda: client_of(client).read(server.bootstrap, topic, COMMITTED) == ["heir"], "what the heir committed"
    )
    heir.close()
