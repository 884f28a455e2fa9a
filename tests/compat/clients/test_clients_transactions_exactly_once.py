"""Consume, transform, produce: what comes out is what went in, whoever is killed, and whenever (I12)."""

import re
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from members.clients import client_of
from members.interface import Joining, Kind
from members.process import Transformers
from members.program import OFFSETS_SENT, PRODUCED
from nodes.groups import hurry
from nodes.ottla_node import running_node, wait_until
from nodes.topics import KEEPING, QUICK_GROUPS, Server, Topics
from nodes.wire import Wire

PARTITIONS, TOTAL = 3, 200
KINDS = [
    Kind("confluent-kafka", "range"),
    Kind("confluent-kafka", "consumer"),
    Kind("kafka-python", "range"),
    Kind("aiokafka", "range"),
]

TAKE_THEIR_PLACE_BACK = ("aiokafka",)
"""Whose zombies disturb their heirs. aiokafka 0.14 leaves the instance id out of its heartbeats: a member that was
replaced is told that it is unknown, not that it is fenced, joins again, and so takes the heir's place in
mid-transaction. The heir asks for its offsets without waiting for pending ones (OffsetFetch 3), and reads again what it
is about to commit, with Kafka as well."""


def named(kind: Kind) -> str:
    return " ".join(kind)


class Course:
    """Numbers in a source, and the target that they go to."""

    def __init__(self, server: Server, topics: Topics, kind: Kind) -> None:
        self._server, self._kind = server, kind
        self.source, self.target = topics.create(server, partitions=PARTITIONS), topics.create(server)
        producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
        self.numbers = [str(number) for number in range(TOTAL)]
        for number in self.numbers:
            producer.produce(self.source, number, partition=int(number) % PARTITIONS)
        assert producer.flush(30) == 0

    def transformers(self) -> Transformers:
        """An heir gets the partitions at once by its instance id; in the consumer protocol a session must end first."""
        group = f"group-of-{self.source}"
        if not self._kind.is_classic:
            with Wire(self._server.bootstrap) as wire:
                hurry(wire, group, session_timeout_ms="1000")
        instance_id = "one" if self._kind.is_classic else None
        joining = Joining(self._server.bootstrap, group, self.source, self._kind.protocol, instance_id)
        return Transformers(self._kind, joining, self.target)

    def arrived(self) -> list[str]:
        return client_of("confluent-kafka").read(self._server.bootstrap, self.target, "read_committed")

    def is_done(self) -> bool:
        return len(self.arrived()) >= TOTAL

    def assert_exactly_once(self) -> None:
        assert Counter(self.arrived()) == Counter(self.numbers)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_transformers_killed_inside_transactions(server: Server, topics: Topics, kind: Kind) -> None:
    """Two are killed with records, and with offsets, written and not committed; the third comes back as a zombie."""
    course = Course(server, topics, kind)
    with course.transformers() as transformers:
        for point in (PRODUCED, OFFSETS_SENT):
            transformers.start_until(1, point).kill()
        zombie = transformers.start_until(1, OFFSETS_SENT)
        zombie.freeze()
        heir = transformers.start()
        if kind.client in TAKE_THEIR_PLACE_BACK:
            heir.until(course.is_done, "the heir has done everything")
            heir.leave()
        else:
            heir.until(lambda: heir.transformed > 0, "the heir gets on")
        zombie.wake()
        zombie.go_on()
        assert re.search("fenced", zombie.fails(), re.IGNORECASE)
        heir.until(course.is_done, "everything has arrived")
    course.assert_exactly_once()


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_broker_killed_inside_a_transaction(tmp_path: Path, topics: Topics, kind: Kind) -> None:
    """The transaction is committed after the restart, or else an heir does its work again."""
    with running_node(tmp_path, KEEPING | QUICK_GROUPS) as node:
        course = Course(node, topics, kind)
        with course.transformers() as transformers:
            transformers.start_until(1, PRODUCED).kill()
            current = transformers.start_until(1, OFFSETS_SENT)
            node.kill()
            node.start()
            current.go_on()

            def is_done() -> bool:
                nonlocal current
                if current.has_ended:
                    current = transformers.start()
                return course.is_done()

            wait_until(is_done, "everything has arrived")
        course.assert_exactly_once()
