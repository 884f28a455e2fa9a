"""Groups go with their directory: Kafka begins them, Ottla takes them over, Kafka takes them back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from nodes.ottla_node import OttlaNode
from peers.broker import KafkaBroker, wait_until

TOPIC, PARTITIONS = "shared-out", 4
PROTOCOLS = {
    "new": {"group.protocol": "consumer"},
    "old": {"group.protocol": "classic"},
}
PATTERNED = "patterned"


class Seen(NamedTuple):
    """A group as the server describes it."""

    type: str
    state: str
    members: int
    committed: list[int]


class Cluster:
    """Whoever serves the directory now, and the consumers of its groups."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def consumer(self, group: str, topic: str = TOPIC, **settings: str) -> Consumer:
        fields = {"bootstrap.servers": self._bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer(fields | {"enable.auto.commit": "false"} | settings)
        consumer.subscribe([topic])

        def has_all() -> bool:
            consumer.poll(0.05)
            return len(consumer.assignment()) == PARTITIONS

        wait_until(has_all, f"the member of {group} has all partitions")
        return consumer

    def commit(self, group: str, offset: int, **settings: str) -> None:
        """Join, commit everywhere, leave."""
        consumer = self.consumer(group, **settings)
        offsets = consumer.assignment()
        for one in offsets:
            one.offset = offset
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()

    def seen(self, group: str) -> Seen:
        found = self._told(lambda: self.admin.describe_consumer_groups([group])[group])
        asked = [ConsumerGroupTopicPartitions(group)]
        offsets = self._told(lambda: self.admin.list_consumer_group_offsets(asked)[group])
        committed = sorted(one.offset for one in offsets.topic_partitions)
        return Seen(found.type.name, found.state.name, len(found.members), committed)

    def _told(self, ask: Callable[[], Any]) -> Any:
        """The answer, once the coordinator has read its log."""
        told: list[Any] = []

        def is_told() -> bool:
            try:
                told.append(ask().result(timeout=5))
            except Exception as error:
                if "oordinator" not in str(error) and "imed out" not in str(error):
                    raise
            return bool(told)

        wait_until(is_told, "the coordinator answers")
        return told[0]


def test_groups_go_back_and_forth(kafka_jars: Path, tmp_path: Path) -> None:
    """Members, epochs, patterns and offsets are in the log; whoever reads it goes on from there."""
    kafka = KafkaBroker(kafka_jars, tmp_path)
    kafka.start()
    try:
        here = Cluster(kafka.bootstrap)
        here.admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for partition in range(PARTITIONS):
            for _ in range(20):
                producer.produce(TOPIC, b"v", partition=partition)
        assert producer.flush(30) == 0
        for group, protocol in PROTOCOLS.items():
            here.commit(group, 5, **protocol)
        left_behind = here.consumer(PATTERNED, "^shared.*", **PROTOCOLS["new"])
        before = {group: here.seen(group) for group in (*PROTOCOLS, PATTERNED)}
        kafka.kill()
    finally:
        kafka.stop()
    left_behind.close()
    assert before["new"] == Seen("CONSUMER", "EMPTY", 0, [5] * PARTITIONS)
    assert before["old"] == Seen("CLASSIC", "EMPTY", 0, [5] * PARTITIONS)
    assert before[PATTERNED] == Seen("CONSUMER", "STABLE", 1, [])

    ottla = OttlaNode(tmp_path, {"node.id": "1"})
    ottla.start()
    try:
        here = Cluster(ottla.bootstrap)
        assert {group: here.seen(group) for group in before} == before
        for group, protocol in PROTOCOLS.items():
            here.commit(group, 9, **protocol)
        left_behind = here.consumer("joined-here", **PROTOCOLS["new"])
        after = {group: here.seen(group) for group in (*before, "joined-here")}
    finally:
        ottla.kill()
    left_behind.close()
    assert after["new"] == Seen("CONSUMER", "EMPTY", 0, [9] * PARTITIONS)
    assert after["joined-here"] == Seen("CONSUMER", "STABLE", 1, [])

    kafka.start()
    try:
        here = Cluster(kafka.bootstrap)
        assert {group: here.seen(group) for group in after} == after
        for group, protocol in PROTOCOLS.items():
            here.commit(group, 11, **protocol)
        assert here.seen("new").committed == [11] * PARTITIONS
    finally:
        kafka.stop()
