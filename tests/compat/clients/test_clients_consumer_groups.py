"""The consumer protocol (KIP-848): the same conversation with both servers, and real consumers in groups."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from nodes.groups import hurry
from nodes.ottla_node import OttlaNode
from nodes.topics import Server, Topics
from nodes.wire import Wire
from peers.broker import wait_until

from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic

PARTITIONS = 6


class Talk:
    """One conversation with a server; `said` is what it answered, without what no two servers share."""

    def __init__(self, server: Server, group: str, topic: str) -> None:
        self.wire = Wire(server.bootstrap)
        self.group, self.topic = group, topic
        self.said: list[str] = []
        hurry(self.wire, group)
        told = self.wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
        self.topic_id = told.topics[0].topic_id

    def ask(self, request: Any, version: int) -> Any:
        answer = self.wire.call(request, version)
        for group in getattr(answer, "groups", ()):
            if hasattr(group, "members"):
                group.members.sort(key=lambda member: member.member_id)
        told = repr(answer).replace(repr(self.topic_id), "<topic>").replace(self.topic, "<name>")
        told = re.sub(r"error_message=(['\"]).*?\1, (group_id|member_id)", r"error_message=..., \2", told)
        self.said.append(f"{type(request).__name__} v{version}: {told}")
        return answer

    def beat(self, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Any:
        said: dict[str, Any] = {"group_id": self.group, "member_id": member_id, "member_epoch": epoch}
        if epoch == 0:
            said |= {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [self.topic], "topic_partitions": []}
        return self.ask(ConsumerGroupHeartbeatRequest(**(said | fields)), version)

    def owning(self, *partitions: int) -> dict[str, Any]:
        return {"topic_partitions": [TopicPartitions(topic_id=self.topic_id, partitions=list(partitions))]}

    def describe(self) -> None:
        self.ask(ConsumerGroupDescribeRequest(group_ids=[self.group], include_authorized_operations=False), 1)

    def commit(self, member_id: str, epoch: int, version: int = 9) -> Any:
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")]
        return self.ask(
            OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=epoch,
                member_id=member_id,
                topics=[OffsetCommitRequestTopic(name=self.topic, partitions=partitions)],
            ),
            version,
        )


def joins_and_leaves(talk: Talk) -> None:
    talk.beat("a", 0)
    talk.beat("a", 2)
    talk.describe()
    talk.beat("b", 0)
    talk.beat("b", 3)
    talk.beat("a", 2, **talk.owning(*range(PARTITIONS)))
    talk.describe()
    talk.beat("a", 2, **talk.owning(*range(PARTITIONS)))
    told = talk.beat("a", 2, **talk.owning(0, 1, 2))
    assert told.member_epoch == 3
    talk.beat("b", 3)
    talk.describe()
    talk.beat("a", -1)
    talk.beat("b", 3, **talk.owning(3, 4, 5))
    talk.beat("b", 4, **talk.owning(*range(PARTITIONS)))
    talk.describe()
    talk.ask(ListGroupsRequest(states_filter=["stable"], types_filter=["Consumer"]), 5)
    talk.ask(DescribeGroupsRequest(groups=[talk.group]), 5)
    talk.ask(DeleteGroupsRequest(groups_names=[talk.group]), 2)
    talk.beat("b", -1)
    talk.describe()
    talk.ask(DeleteGroupsRequest(groups_names=[talk.group]), 2)
    talk.describe()


def bad_requests(talk: Talk) -> None:
    talk.beat("a", 5)
    talk.beat("a", -1)
    talk.beat("", 0)
    talk.beat("a", 0, group_id="")
    talk.beat("a", 0, rack_id="")
    talk.beat("a", 0, instance_id="")
    talk.beat("a", 0, rebalance_timeout_ms=-1)
    talk.beat("a", 0, topic_partitions=None)
    talk.beat("a", 0, subscribed_topic_names=None)
    talk.beat("a", 0, server_assignor="sticky")
    talk.beat("a", -2)
    talk.beat("a", -3)
    for pattern in ("(", "(?=a)", r"(a)\1", "a{1001}", "a**", "(?x)a"):
        talk.beat("a", 0, subscribed_topic_names=None, subscribed_topic_regex=pattern)
    talk.describe()
    talk.beat("a", 0)
    talk.beat("a", 1)
    talk.beat("a", 3)
    talk.beat("x", 2)
    talk.beat("a", 2, **talk.owning(0, 99))
    talk.describe()


def epochs_of_commits(talk: Talk) -> None:
    talk.commit("", -1)
    talk.beat("a", 0)
    talk.commit("a", 2)
    talk.commit("a", 2, version=8)
    talk.commit("a", 1)
    talk.commit("a", 3)
    talk.commit("b", 2)
    talk.commit("", -1)
    talk.beat("a", 2, subscribed_topic_names=[talk.topic, "absent"], **talk.owning(*range(PARTITIONS)))
    talk.commit("a", 3)
    talk.commit("a", 2)


def static_members(talk: Talk) -> None:
    talk.beat("a", 0, instance_id="i")
    talk.beat("b", 0, instance_id="i")
    talk.beat("b", 2, instance_id="i")
    talk.beat("a", -2, instance_id="i")
    talk.describe()
    talk.beat("b", 0, instance_id="i")
    talk.describe()
    talk.beat("a", 2, instance_id="i")
    talk.beat("b", -2, instance_id="j")
    talk.beat("b", -1, instance_id="i")
    talk.describe()


def assignors(talk: Talk) -> None:
    talk.beat("a", 0, server_assignor="range")
    talk.describe()
    talk.beat("b", 0, server_assignor="range")
    talk.beat("a", 2, **talk.owning(*range(PARTITIONS)))
    talk.beat("a", 2, **talk.owning(0, 1, 2))
    talk.beat("b", 3)
    talk.describe()
    talk.beat("a", 3, subscribed_topic_names=[], **talk.owning(0, 1, 2))
    talk.beat("a", 3, topic_partitions=[])
    talk.describe()


def growing_topics(talk: Talk) -> None:
    talk.beat("a", 0)
    topic = CreatePartitionsTopic(name=talk.topic, count=PARTITIONS + 2, assignments=None)
    talk.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=False), 3)

    def is_known() -> bool:
        told = talk.wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=talk.topic)]), 12)
        return len(told.topics[0].partitions) == PARTITIONS + 2

    wait_until(is_known, "the broker knows of the new partitions")
    owning = talk.owning(*range(PARTITIONS))
    wait_until(
        lambda: (
            talk.wire.call(
                ConsumerGroupHeartbeatRequest(group_id=talk.group, member_id="a", member_epoch=2, **owning), 1
            ).member_epoch
            == 3
        ),
        "the group knows of them",
    )
    talk.beat("a", 3, rebalance_timeout_ms=30_000, subscribed_topic_names=[talk.topic], **owning)
    talk.describe()


@pytest.mark.parametrize(
    "story",
    [joins_and_leaves, bad_requests, epochs_of_commits, static_members, assignors, growing_topics],
    ids=lambda story: story.__name__,
)
def test_answers_are_kafkas(ottla: OttlaNode, kafka: Server, topics: Topics, story: Callable[[Talk], None]) -> None:
    said = []
    for server in (kafka, ottla):
        topic = topics.create(server, partitions=PARTITIONS)
        talk = Talk(server, f"group-of-{topic}", topic)
        with talk.wire:
            story(talk)
        said.append([one.replace(talk.group, "<group>") for one in talk.said])
    for ours, kafkas in zip(*reversed(said), strict=True):
        assert ours == kafkas


# Real consumers.


class Members:
    """Consumers of one group, polled together."""

    def __init__(self, server: Server, group: str) -> None:
        self.server, self.group = server, group
        self.all: list[Consumer] = []
        self._got: list[int] = []
        with Wire(server.bootstrap) as wire:
            hurry(wire, group)

    def add(self, topic: str, **settings: str) -> Consumer:
        fields = {
            "bootstrap.servers": self.server.bootstrap,
            "group.id": self.group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
        member = Consumer(fields | settings)
        member.subscribe([topic])
        self.all.append(member)
        return member

    def add_classic(self, topic: str) -> Consumer:
        quick = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "200"}
        return self.add(topic, **{"group.protocol": "classic"} | quick)

    def close(self, *members: Consumer) -> None:
        for member in members:
            self.all.remove(member)
            member.close()

    def poll(self) -> None:
        for member in self.all:
            message = member.poll(0.02)
            if message is not None:
                assert message.error() is None, message.error()
                self._got.append(int(message.value()))

    def settle(self, *sizes: int) -> None:
        """Until each has so many partitions, and all have all."""

        def is_settled() -> bool:
            self.poll()
            owned = [{one.partition for one in member.assignment()} for member in self.all]
            return [len(one) for one in owned] == list(sizes) and len(set().union(*owned)) == sum(sizes)

        wait_until(is_settled, f"members have {sizes} partitions")

    def read(self, count: int) -> list[int]:
        """So many records, with those that came while members were settling."""

        def is_all_read() -> bool:
            self.poll()
            return len(self._got) >= count

        wait_until(is_all_read, f"{count} records are read")
        got, self._got = sorted(self._got), []
        return got


@pytest.fixture
def topic(server: Server, topics: Topics) -> str:
    return topics.create(server, partitions=PARTITIONS)


@contextmanager
def members_of(server: Server, topic: str) -> Iterator[Members]:
    members = Members(server, f"group-of-{topic}")
    try:
        yield members
    finally:
        members.close(*members.all)


def produce(server: Server, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for value in values:
        producer.produce(topic, str(value), partition=value % PARTITIONS)
    assert producer.flush(30) == 0


def test_members_share_as_they_come_and_go(server: Server, topic: str) -> None:
    with members_of(server, topic) as members:
        first = members.add(topic)
        members.settle(6)
        members.add(topic)
        members.settle(3, 3)
        third = members.add(topic)
        members.settle(2, 2, 2)
        members.close(first)
        members.settle(3, 3)
        members.close(third)
        members.settle(6)


def test_a_group_goes_on_where_it_committed(server: Server, topic: str) -> None:
    produce(server, topic, range(60))
    with members_of(server, topic) as members:
        members.add(topic)
        members.add(topic)
        members.settle(3, 3)
        assert members.read(60) == list(range(60))
        for member in members.all:
            member.commit(asynchronous=False)
        members.close(*members.all)
        produce(server, topic, range(60, 90))
        members.add(topic)
        assert members.read(30) == list(range(60, 90))


def test_a_static_member_keeps_its_partitions(server: Server, topic: str) -> None:
    with members_of(server, topic) as members:
        static = members.add(topic, **{"group.instance.id": "one"})
        members.add(topic)
        members.settle(3, 3)
        had = {one.partition for one in static.assignment()}
        members.close(static)
        again = members.add(topic, **{"group.instance.id": "one"})
        members.settle(3, 3)
        assert {one.partition for one in again.assignment()} == had


def test_a_pattern_is_matched_by_the_server(server: Server, topic: str) -> None:
    with members_of(server, topic) as members:
        members.add(f"^{re.escape(topic[:-1])}.$")
        members.settle(6)


def test_a_group_goes_to_the_consumer_protocol_and_back(server: Server, topic: str) -> None:
    with members_of(server, topic) as members:
        members.add_classic(topic)
        members.settle(6)
        new = members.add(topic)
        members.settle(3, 3)
        members.add_classic(topic)
        members.settle(2, 2, 2)
        members.close(new)
        members.settle(3, 3)
        newest = members.add(topic)
        members.settle(2, 2, 2)
        members.close(*(one for one in list(members.all) if one is not newest))
        members.settle(6)
