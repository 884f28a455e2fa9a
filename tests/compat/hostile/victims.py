"""Groups of honest members, for others to be mean to."""

from collections.abc import Sequence
from typing import Any

from nodes.topics import Server
from nodes.wire import Wire
from peers.broker import wait_until
from peers.client import Client

from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.errors import Error

SUBSCRIPTION = b"\0\0\0\0\0\1\0\5topic\xff\xff\xff\xff"
ASSIGNMENT = b"all of it"
COMMITTED = 5


class Victims:
    """A topic, a group of each protocol with one member that has what it wants, and an offset that each has committed.

    Names are the same on every server, and so are the answers that a test compares.
    """

    def __init__(self, server: Server, name: str) -> None:
        self.bootstrap = server.bootstrap
        self.wire = Wire(server.bootstrap)
        self.topic, self.classic, self.consumer = name, f"{name}-classic", f"{name}-consumer"
        Client(server.bootstrap).create_topics({name: {}}, {name: 1})
        for group in (self.classic, self.consumer):
            wait_until(lambda group=group: self._is_coordinated(group), f"{group} has a coordinator")  # type: ignore[misc]
        told = self.join(self.join(group_id=self.classic).member_id, group_id=self.classic)
        self.member, self.generation = told.member_id, told.generation_id
        assert self.sync(self.classic, self.member, self.generation).error_code == Error.NONE
        self.epoch = self.beat("honest", 0).member_epoch
        for group, member, generation in self._members():
            assert self.commit(group, member, generation) == [Error.NONE]

    def assert_unharmed(self) -> None:
        """Nobody was asked to rejoin, nobody lost an offset."""
        assert self.heartbeat() == Error.NONE
        told = self.beat("honest", self.epoch)
        assert (told.error_code, told.member_epoch) == (Error.NONE, self.epoch)
        for group, member, generation in self._members():
            assert self.committed(group) == COMMITTED
            assert self.commit(group, member, generation) == [Error.NONE]

    def close(self) -> None:
        self.wire.socket.close()

    def _members(self) -> Sequence[tuple[str, str, int]]:
        return (self.classic, self.member, self.generation), (self.consumer, "honest", self.epoch)

    def _is_coordinated(self, group: str) -> bool:
        found = self.wire.call(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0]
        if found.error_code != Error.NONE:
            return False
        return bool(self.wire.call(DescribeGroupsRequest(groups=[group]), 5).groups[0].error_code == Error.NONE)

    # Requests.

    def join(self, member_id: str = "", **fields: Any) -> Any:
        return self.wire.call(join_request(member_id, **fields), 9)

    def sync(self, group: str, member_id: str, generation: int) -> Any:
        return self.wire.call(sync_request(group, member_id, generation), 5)

    def heartbeat(self) -> Error:
        """Of the member of the classic group."""
        request = HeartbeatRequest(group_id=self.classic, generation_id=self.generation, member_id=self.member)
        return Error(self.wire.call(request, 4).error_code)

    def rejoin(self) -> Error:
        """What the member of the classic group does when there are others."""
        self.generation = self.join(self.member, group_id=self.classic).generation_id
        return Error(self.sync(self.classic, self.member, self.generation).error_code)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        said: dict[str, Any] = {"group_id": self.consumer, "member_id": member_id, "member_epoch": epoch}
        if epoch == 0:
            said |= {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [self.topic], "topic_partitions": []}
        return self.wire.call(ConsumerGroupHeartbeatRequest(**(said | fields)), 1)

    def commit(
        self, group: str, member_id: str = "", generation: int = -1, *, metadata: str = "", offset: int = COMMITTED
    ) -> list[Error]:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        topics = [OffsetCommitRequestTopic(name=self.topic, partitions=[partition])]
        return self.commit_all(group, topics, member_id, generation)

    def commit_all(
        self, group: str, topics: list[OffsetCommitRequestTopic], member_id: str = "", generation: int = -1
    ) -> list[Error]:
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=topics
        )
        answer = self.wire.call(request, 9)
        return [Error(one.error_code) for topic in answer.topics for one in topic.partitions]

    def committed(self, group: str) -> int:
        asked = OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])])
        offset: int = self.wire.call(request, 9).groups[0].topics[0].partitions[0].committed_offset
        return offset


def range_protocol() -> JoinGroupRequestProtocol:
    return JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)


def join_request(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    said: dict[str, Any] = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [range_protocol()],
    }
    return JoinGroupRequest(**(said | fields))


def sync_request(group: str, member_id: str, generation: int) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=ASSIGNMENT)],
    )
