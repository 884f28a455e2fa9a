"""Groups of real clients: members in processes of their own that come, go, restart and are killed."""

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from members.interface import Kind
from members.process import Group, MemberProcess
from members.program import COMMIT
from nodes.groups import hurry
from nodes.ottla_node import running_node
from nodes.topics import KEEPING, QUICK_GROUPS, Server, Topics
from nodes.wire import Wire

PARTITIONS = 6
ALL = set(range(PARTITIONS))
SOON_MS = 2_000
"""The session of a member that will be killed: the others wait it out."""

KINDS = [
    Kind("confluent-kafka", "range"),
    Kind("confluent-kafka", "cooperative"),
    Kind("confluent-kafka", "consumer"),
    Kind("kafka-python", "range"),
    Kind("kafka-python", "cooperative"),
    Kind("aiokafka", "sticky"),
]
CLASSIC = [kind for kind in KINDS if kind.is_classic]
FENCED = [kind for kind in CLASSIC if kind.client != "aiokafka"]
"""aiokafka has no word for a fenced instance id: two of its members would take it from each other for ever."""


def named(kind: Kind) -> str:
    return " ".join(kind)


def group_of(server: Server, topic: str, kind: Kind, session_ms: int = 10_000) -> Group:
    group = Group(server.bootstrap, topic, kind)
    if not kind.is_classic:
        with Wire(server.bootstrap) as wire:
            hurry(wire, group.name, session_timeout_ms=str(session_ms))
    return group


def produce(server: Server, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, str(value), partition=value % PARTITIONS)
    assert producer.flush(30) == 0


def two_members(
    server: Server, topic: str, group: Group, names: tuple[str | None, str | None] = (None, None), **settings: int
) -> tuple[MemberProcess, MemberProcess]:
    """With three partitions each, of which all sixty records are read and committed.

    One after the other: a partition that librdkafka loses while it looks where to begin, it goes on fetching, and
    gives out what it has though the partition is another's, or its own again.
    """
    produce(server, topic, range(60))
    first = group.join(names[0], **settings)
    assert group.read(60) == list(range(60))
    first.commit()
    second = group.join(names[1], **settings)
    group.settle(PARTITIONS, 3, 3)
    return first, second


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_every_record_is_read_once_while_members_come_and_go(server: Server, topics: Topics, kind: Kind) -> None:
    """A member commits before it gives a partition up, and whoever gets it goes on there."""
    topic = topics.create(server, partitions=PARTITIONS)
    total = 0
    with group_of(server, topic, kind) as group:

        def produce_more() -> None:
            nonlocal total
            produce(server, topic, range(total, total + 60))
            total += 60
            if kind.client == "kafka-python":  # Its listeners cannot know what a poll is about to give out.
                group.read(total)

        first = group.join()
        group.settle(PARTITIONS, 6)
        produce_more()
        group.join()
        group.settle(PARTITIONS, 3, 3)
        produce_more()
        group.join()
        group.settle(PARTITIONS, 2, 2, 2)
        produce_more()
        group.leave(first)
        group.settle(PARTITIONS, 3, 3)
        produce_more()
        assert group.read(total) == list(range(total))
        for member in list(group.members):
            group.leave(member)
        group.join()
        produce_more()
        assert group.read(total) == list(range(total))


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_what_members_keep_when_another_joins(server: Server, topics: Topics, kind: Kind) -> None:
    """Where sharing is incremental, they give up only what the newcomer gets; elsewhere everything."""
    topic = topics.create(server, partitions=PARTITIONS)
    with group_of(server, topic, kind) as group:
        first = group.join()
        group.settle(PARTITIONS, 6)
        newcomer = group.join()
        group.settle(PARTITIONS, 3, 3)
        assert set(first.revoked) == (newcomer.owned if kind.is_incremental else ALL)
        assert len(first.revoked) == len(set(first.revoked)), "each is given up once"


@pytest.mark.parametrize("kind", CLASSIC, ids=named)
def test_static_member_killed_and_restarted_disturbs_nobody(server: Server, topics: Topics, kind: Kind) -> None:
    """Within its session it comes back to what it had, and the others do not hear of it (KIP-345)."""
    topic = topics.create(server, partitions=PARTITIONS)
    with group_of(server, topic, kind) as group:
        static, other = two_members(server, topic, group, ("one", "two"))
        had, heard = set(static.owned), list(other.events)
        group.kill(static)
        again = group.join("one")
        group.settle(PARTITIONS, 3, 3)
        produce(server, topic, range(60, 90))
        assert group.read(90) == list(range(90)), "it goes on where it committed"
        assert again.owned == had
        assert [event for event in other.events[len(heard) :] if event != "got"] == []


@pytest.mark.parametrize("kind", FENCED, ids=named)
def test_older_of_two_members_with_one_instance_id_is_fenced(server: Server, topics: Topics, kind: Kind) -> None:
    """The newer one has what the older had, whose offsets count no more."""
    topic = topics.create(server, partitions=PARTITIONS)
    produce(server, topic, range(6))
    with group_of(server, topic, kind) as group:
        older = group.join("one")
        group.read(6)
        newer = group.join("one")
        newer.until(lambda: newer.owned == ALL, "the newer one has everything")
        older.order(COMMIT)
        assert re.search("fenced", older.fails(), re.IGNORECASE)
        newer.until(lambda: len(newer.got) == 6, "nothing was committed")


def test_newer_of_two_members_with_one_instance_id_is_refused(server: Server, topics: Topics) -> None:
    """In the consumer protocol it is the older one that stays."""
    topic, kind = topics.create(server, partitions=PARTITIONS), Kind("confluent-kafka", "consumer")
    with group_of(server, topic, kind) as group:
        group.join("one")
        group.settle(PARTITIONS, 6)
        newer = group.join("one")
        assert re.search("instance ID is still used", newer.fails())
        group.members.remove(newer)
        group.settle(PARTITIONS, 6)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_partitions_of_a_killed_member_go_on_where_it_committed(server: Server, topics: Topics, kind: Kind) -> None:
    """What it had read since is read again by whoever gets its partitions; nothing else is."""
    topic = topics.create(server, partitions=PARTITIONS)
    with group_of(server, topic, kind, SOON_MS) as group:
        victim, _ = two_members(server, topic, group, session_ms=SOON_MS)
        produce(server, topic, range(60, 90))
        assert group.read(90) == list(range(90))
        uncommitted = [int(one.value) for one in victim.got if int(one.value) >= 60]
        group.kill(victim)
        group.settle(PARTITIONS, 6)
        produce(server, topic, range(90, 100))
        expected = sorted([*range(100), *uncommitted])
        assert group.read(len(expected)) == expected


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_group_goes_on_after_its_broker_was_killed(tmp_path: Path, topics: Topics, kind: Kind) -> None:
    """Members and offsets are in the log: after a kill -9 nobody reads anything again."""
    with running_node(tmp_path, KEEPING | QUICK_GROUPS) as node:
        topic = topics.create(node, partitions=PARTITIONS)
        with group_of(node, topic, kind) as group:
            two_members(node, topic, group)
            node.kill()
            node.start()
            produce(node, topic, range(60, 90))
            assert group.read(90) == list(range(90))
            for member in list(group.members):
                group.leave(member)
            group.join()
            produce(node, topic, range(90, 100))
            assert group.read(100) == list(range(100))
