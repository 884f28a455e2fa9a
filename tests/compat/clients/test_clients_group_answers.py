"""Requests to a group's coordinator, one by one, in every version: Ottla answers them as Kafka does, field by field.

The conversation is the same with both; ids that the server made up are told apart by the order they came in.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from nodes.ottla_node import OttlaNode, running_node
from nodes.topics import KEEPING, Server, Topics
from nodes.wire import Wire
from peers.broker import wait_until
from peers.client import Client

from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.errors import Error
from ottla.wire.schema import message_of
from ottla.wire.types import NO_UUID

MADE_UP = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
NO_TOPIC = b"\x07" * 16
SUBSCRIPTION = b"\0\0\0\0\0\1\0\5topic\xff\xff\xff\xff"


@pytest.fixture(scope="module")
def prompt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    """Without the delay that Kafka's tests go without, too."""
    settings = KEEPING | {"group.initial.rebalance.delay.ms": "0"}
    with running_node(tmp_path_factory.mktemp("prompt"), settings) as node:
        yield node


class Talk:
    """One conversation with a server; `said` is what it answered, without what no two servers share."""

    def __init__(self, server: Server, group: str, topic: str) -> None:
        self.wire = Wire(server.bootstrap)
        self.group, self.topic = group, topic
        self.said: list[str] = []
        self._ids: dict[str, str] = {}
        wait_until(self._is_coordinated, "the group has a coordinator")
        told = self.wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
        self.topic_id = told.topics[0].topic_id

    def _is_coordinated(self) -> bool:
        told = self.wire.call(FindCoordinatorRequest(coordinator_keys=[self.group]), 4)
        if told.coordinators[0].error_code:
            return False
        told = self.wire.call(DescribeGroupsRequest(groups=[self.group]), 0)
        return bool(told.groups[0].error_code == Error.NONE)

    def ask(self, request: Any, version: int) -> Any:
        answer = self.wire.call(request, version)
        told = MADE_UP.sub(
            lambda found: self._ids.setdefault(found[0], f"<id {len(self._ids)}>"), repr(self._in_order(answer))
        )
        told = re.sub(r"error_message=(['\"]).*?\1, group_id", "error_message=..., group_id", told)
        self.said.append(f"{type(request).__name__} v{version}: {told}")
        return answer

    def _in_order(self, answer: Any) -> Any:
        """Kafka answers about several things in any order; a topic's id is the server's own."""
        for topic in getattr(answer, "topics", ()):
            topic.partitions.sort(key=lambda one: one.partition_index)
            if getattr(topic, "topic_id", None) == self.topic_id:
                topic.topic_id = b"topic"
        for group in getattr(answer, "groups", ()):
            self._in_order(group)
        if hasattr(answer, "results"):
            answer.results.sort(key=lambda result: result.group_id)
        if hasattr(answer, "topics"):
            answer.topics.sort(key=lambda topic: (topic.name, getattr(topic, "topic_id", b"")))
        return answer

    # Requests.

    def join(self, version: int, member_id: str = "", **fields: Any) -> Any:
        said: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000 if version else -1,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        } | fields
        return self.ask(JoinGroupRequest(**said), version)

    def sync(self, version: int, member_id: str, generation: int, **fields: Any) -> Any:
        named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        said: dict[str, Any] = (
            {
                "group_id": self.group,
                "generation_id": generation,
                "member_id": member_id,
                "assignments": [SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")],
            }
            | named
            | fields
        )
        return self.ask(SyncGroupRequest(**said), version)

    def heartbeat(self, version: int, member_id: str, generation: int, **fields: Any) -> Any:
        group = {"group_id": self.group} | fields
        return self.ask(HeartbeatRequest(generation_id=generation, member_id=member_id, **group), version)

    def leave(self, version: int, *members: str, instance: str | None = None) -> Any:
        identities = [MemberIdentity(member_id=one, group_instance_id=instance) for one in members]
        request = LeaveGroupRequest(group_id=self.group, members=identities)
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group, member_id=members[0])
        return self.ask(request, version)

    def commit(self, version: int, member_id: str = "", generation: int = -1, **fields: Any) -> Any:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=index + 5, committed_leader_epoch=2, committed_metadata=text
            )
            for index, text in ((0, "meta"), (1, None), (2, "x" * 5000), (99, ""))
        ]
        topics = [
            OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=list(partitions))
            for name, topic_id in ((self.topic, self.topic_id), ("absent", NO_TOPIC))
        ]
        for topic in topics:
            topic.name, topic.topic_id = (topic.name, NO_UUID) if version < 10 else ("", topic.topic_id)
        said: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "topics": topics,
        } | fields
        return self.ask(OffsetCommitRequest(**said), version)

    def fetch(self, version: int, *groups: str, everything: bool = False, stable: bool = False) -> Any:
        if version < 8:
            asked = [
                OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0, 1, 2, 99]),
                OffsetFetchRequestTopic(name="absent", partition_indexes=[0]),
            ]
            request = OffsetFetchRequest(
                group_id=groups[0], topics=None if everything else asked, require_stable=stable and version >= 7
            )
        else:
            named = [
                (self.topic, self.topic_id, [0, 1, 2, 99]),
                ("absent", NO_TOPIC, [0]),
            ]
            request = OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id=group,
                        topics=None
                        if everything
                        else [
                            OffsetFetchRequestTopics(
                                name=name if version < 10 else "",
                                topic_id=topic_id if version >= 10 else NO_UUID,
                                partition_indexes=indexes,
                            )
                            for name, topic_id, indexes in named
                        ],
                    )
                    for group in groups
                ],
                require_stable=stable,
            )
        return self.ask(request, version)

    def delete_offsets(self, *places: tuple[str, int], group: str | None = None) -> Any:
        topics = [
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)])
            for topic, index in places
        ]
        return self.ask(OffsetDeleteRequest(group_id=self.group if group is None else group, topics=topics), 0)

    def describe(self, version: int, *groups: str) -> Any:
        return self.ask(DescribeGroupsRequest(groups=list(groups or (self.group,))), version)


def versions(request: type) -> range:
    return message_of(request).versions


# Conversations.


def commits_without_members(talk: Talk) -> None:
    for version in versions(OffsetFetchRequest):
        talk.fetch(version, talk.group, stable=True)
        if version >= 2:
            talk.fetch(version, talk.group, everything=True)
    for version in versions(OffsetCommitRequest):
        talk.commit(version)
        talk.commit(version, "stranger", 3)
        talk.commit(version, "stranger", -1)
    for version in versions(OffsetFetchRequest):
        talk.fetch(version, talk.group)
        if version >= 2:
            talk.fetch(version, talk.group, everything=True)
        if version >= 8:
            talk.fetch(version, talk.group, "none", talk.group)
    for version in versions(DescribeGroupsRequest):
        talk.describe(version, talk.group, "none", "")
    talk.delete_offsets((talk.topic, 0), (talk.topic, 99), ("absent", 0))
    talk.delete_offsets((talk.topic, 0), group="none")
    talk.delete_offsets((talk.topic, 0), group="")
    talk.fetch(9, talk.group)
    for version in versions(DeleteGroupsRequest):
        talk.ask(DeleteGroupsRequest(groups_names=[talk.group, "none", ""]), version)
    talk.fetch(9, talk.group)


def a_life_as_member(talk: Talk, version: int) -> None:
    """The versions of the other requests go along with that of JoinGroup."""
    sync, beat, leave = min(version, 5), min(version, 4), min(version, 5)
    talk.join(version, "stranger")
    talk.join(version, session_timeout_ms=1)
    talk.join(version, group_id="")
    talk.join(version, protocols=[])
    talk.join(version, protocol_type="")
    told = talk.join(version)
    member = told.member_id
    if told.error_code == Error.MEMBER_ID_REQUIRED:
        talk.heartbeat(beat, member, 0)
        talk.join(version, member, protocol_type="other")
        told = talk.join(version, member)
    generation = told.generation_id
    talk.describe(5)
    talk.commit(8, member, generation)
    for wrong in ((member, generation + 1), ("stranger", generation), (member, -1)):
        talk.heartbeat(beat, *wrong)
        talk.sync(sync, *wrong)
        talk.commit(8, *wrong)
    if version >= 7:
        talk.sync(5, member, generation, protocol_name="sticky")
        talk.sync(5, member, generation, protocol_name=None)
    talk.join(version, member)
    talk.sync(sync, member, generation)
    talk.sync(sync, member, generation)
    talk.heartbeat(beat, member, generation)
    talk.heartbeat(beat, member, generation, group_id="")
    talk.commit(8, member, generation)
    talk.commit(9, "", -1)
    talk.describe(6)
    talk.delete_offsets(("topic", 0), (talk.topic, 0))
    talk.ask(DeleteGroupsRequest(groups_names=[talk.group]), 2)
    talk.join(version, member)
    talk.heartbeat(beat, member, generation)
    talk.leave(leave, "stranger")
    talk.leave(leave, member)
    talk.leave(leave, member)
    talk.heartbeat(beat, member, generation)
    talk.describe(6)


def a_life_as_static_member(talk: Talk) -> None:
    told = talk.join(9, group_instance_id="one")
    old, generation = told.member_id, told.generation_id
    talk.sync(5, old, generation, group_instance_id="one")
    for version in (9, 8, 6, 5):
        told = talk.join(version, group_instance_id="one")
        talk.sync(5, told.member_id, told.generation_id, group_instance_id="one")
    talk.heartbeat(4, old, generation, group_instance_id="one")
    talk.heartbeat(4, old, generation)
    talk.heartbeat(4, told.member_id, generation, group_instance_id="two")
    talk.sync(5, old, generation, group_instance_id="one")
    talk.join(9, old, group_instance_id="one")
    talk.commit(9, old, generation, group_instance_id="one")
    talk.commit(9, told.member_id, told.generation_id, group_instance_id="one")
    talk.describe(6)
    talk.leave(5, old, instance="one")
    talk.leave(5, "", instance="two")
    talk.leave(5, "", instance="one")
    talk.leave(5, "")
    talk.describe(6)


def another_kind_of_group(talk: Talk) -> None:
    told = talk.join(3, protocol_type="connect")
    talk.join(3, protocol_type="consumer")
    talk.sync(2, told.member_id, told.generation_id)
    talk.delete_offsets((talk.topic, 0))
    talk.leave(3, told.member_id)


CONVERSATIONS = {
    "no members": commits_without_members,
    "static": a_life_as_static_member,
    "connect": another_kind_of_group,
} | {f"member v{version}": lambda talk, version=version: a_life_as_member(talk, version) for version in range(10)}


@pytest.mark.parametrize("conversation", list(CONVERSATIONS))
def test_ottla_answers_as_kafka_does(prompt: OttlaNode, kafka: Server, topics: Topics, conversation: str) -> None:
    group, topic = topics.name(), topics.name()
    said = []
    for server in (kafka, prompt):
        Client(server.bootstrap).create_topics({topic: {}}, {topic: 3})
        talk = Talk(server, group, topic)
        with talk.wire:
            CONVERSATIONS[conversation](talk)
        said.append(talk.said)
    theirs, ours = said
    assert ours == theirs


def test_groups_are_listed_with_state_and_type(prompt: OttlaNode, kafka: Server, topics: Topics) -> None:
    group, topic = topics.name(), topics.name()
    listed = []
    for server in (kafka, prompt):
        Client(server.bootstrap).create_topics({topic: {}}, {topic: 3})
        talk = Talk(server, group, topic)
        with talk.wire as wire:
            told = talk.join(5)
            talk.join(5, told.member_id)
            for version in versions(ListGroupsRequest):
                found = wire.call(ListGroupsRequest(), version)
                listed += [one for one in found.groups if one.group_id == group]
            for states, types in ((["CompletingRebalance"], []), ([], ["Classic"]), (["Stable"], []), ([], ["share"])):
                found = wire.call(ListGroupsRequest(states_filter=states, types_filter=types), 5)
                listed.append(group in [one.group_id for one in found.groups])
    assert listed[len(listed) // 2 :] == listed[: len(listed) // 2]
