"""A shard of groups with the runtime's part played by hand: decisions are replayed at once, answers are collected."""

from typing import Any

from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.group import GroupClient
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.shard import GroupShard
from ottla.core.runtime.decision import PARKED, Decision, Token
from ottla.core.runtime.shard import CoordinatorRecord, RecordOrigin, RecordTypes, encode_record
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.api.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.codec import encode
from ottla.wire.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.errors import Error, Refused
from ottla.wire.records import consumer_groups, groups

TYPES = RecordTypes(groups, consumer_groups)
SETTINGS = GroupSettings(
    session_timeout_ms_min=1_000,
    session_timeout_ms_max=60_000,
    initial_rebalance_delay_ms=3_000,
    members_max=100,
    offset_metadata_bytes_max=100,
    offsets_retention_ms=600_000,
    offsets_check_interval_ms=60_000,
    group_bytes_max=100_000,
)


def subscription(*topics: str) -> bytes:
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


class Home:
    """One shard, its log, its clock, and the answers given so far."""

    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.settings = settings
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None, int] | tuple[int, bool]] = []
        """Key, value and producer of each record, or a marker's producer and outcome."""
        self.answers: dict[Token, Any] = {}
        self.tokens = 0
        self.uuids = 0
        self.shard = self.new_shard()
        self.apply(self.shard.loaded(self.now_ms))

    def new_shard(self) -> GroupShard:
        def new_uuid() -> str:
            self.uuids += 1
            return f"uuid{self.uuids}"

        return GroupShard(self.settings, new_uuid)

    # The runtime's part.

    def apply(self, decision: Decision[Any], producer_id: int = -1) -> None:
        for record in decision.records:
            key, value = encode_record(record)
            self.shard.replay(self.read(key, value), self.origin(len(self.log), producer_id))
            self.log.append((key, value, producer_id))
        if decision.accept is not None:
            decision.accept()
        for token, response in decision.wake:
            self.answers[token] = response

    def handle(self, handle: Any, producer_id: int = -1) -> Any:
        """The reply, or the token under which it will be."""
        self.tokens += 1
        token = Token(self.tokens)
        before = self.visible()
        decision = handle(self.shard, self.now_ms, token)
        assert self.visible() == before, "deciding alone changes nothing: the decision may be dropped"
        self.apply(decision, producer_id)
        if decision.reply is not PARKED:
            return decision.reply
        return self.answers.get(token, token)

    def visible(self) -> list[str]:
        """All of every classic group, sessions excepted."""
        return [f"{name} {vars(one)}" for name, one in self.shard.groups.items() if isinstance(one, ClassicGroup)]

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.log.append((producer_id, committed))
        self.shard.replay_marker(producer_id, 0, committed=committed)

    def advance(self, by_ms: int) -> None:
        """Let time pass, and what is due happen when it is due."""
        until_ms = self.now_ms + by_ms
        while (at_ms := self.shard.next_deadline()) is not None and at_ms <= until_ms:
            self.now_ms = max(at_ms, self.now_ms)
            self.apply(self.shard.tick(self.now_ms))
        self.now_ms = until_ms

    def reload(self) -> None:
        """As after a restart: nobody waits any more, and the log is all there is."""
        self.shard = self.loaded(len(self.log))
        self.answers = {}
        self.apply(self.shard.loaded(self.now_ms))

    def loaded(self, length: int) -> GroupShard:
        shard = self.new_shard()
        for offset, entry in enumerate(self.log[:length]):
            if len(entry) == 2:
                shard.replay_marker(entry[0], 0, committed=entry[1])
            else:
                shard.replay(self.read(entry[0], entry[1]), self.origin(offset, entry[2]))
        return shard

    @staticmethod
    def read(key: bytes, value: bytes | None) -> CoordinatorRecord:
        record = TYPES.decode(key, value)
        assert record is not None
        return record

    @staticmethod
    def origin(offset: int, producer_id: int) -> RecordOrigin:
        return RecordOrigin(offset, 0, producer_id, 0 if producer_id >= 0 else -1)

    # Clients.

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 30_000,
        version: int = 9,
    ) -> Any:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in ({"range": subscription("t")} if protocols is None else protocols).items()
            ],
        )
        client = GroupClient("client", "/127.0.0.1", version)
        return self.handle(lambda shard, now_ms, token: shard.classic.join(request, client, now_ms, token))

    def enter(self, **arguments: Any) -> tuple[str, Any]:
        """Join as a new dynamic member does: the id it was given, and the token of its second request."""
        told = self.join(**arguments)
        assert told.error_code == Error.MEMBER_ID_REQUIRED
        return told.member_id, self.join(told.member_id, **arguments)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_name: str | None = None,
    ) -> Any:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=one, assignment=assignment)
                for one, assignment in (assignments or {}).items()
            ],
        )
        return self.handle(lambda shard, now_ms, token: shard.classic.sync(request, now_ms, token))

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> Error:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        try:
            response = self.handle(lambda shard, now_ms, _: shard.classic.heartbeat(request, now_ms))
        except Refused as refusal:
            return refusal.error
        return Error(response.error_code)

    def leave(self, *members: str, group: str = "g", instance: str | None = None) -> list[Error]:
        identities = [MemberIdentity(member_id=one, group_instance_id=instance) for one in members]
        request = LeaveGroupRequest(group_id=group, members=identities)
        response: LeaveGroupResponse = self.handle(lambda shard, now_ms, _: shard.classic.leave(request, now_ms))
        return [Error(one.error_code) for one in response.members]

    def stable(self, members: int = 1, **arguments: Any) -> list[str]:
        """A group in its first generation; the leader comes first."""
        entered = [self.enter(**arguments) for _ in range(members)]
        self.advance(2 * self.settings.initial_rebalance_delay_ms + self.settings.initial_rebalance_delay_ms)
        ids = [member_id for member_id, _ in entered]
        generation = self.answers[entered[0][1]].generation_id
        for member_id in reversed(ids):
            self.sync(member_id, generation, {one: one.encode() for one in ids}, group=arguments.get("group", "g"))
        return ids

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation: int = -1,
        *,
        group: str = "g",
        metadata: str | None = None,
        version: int = 9,
        retention_ms: int = -1,
        instance: str | None = None,
    ) -> Error:
        """What the one partition, or all of them, was answered."""
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_leader_epoch=3,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        try:
            response: OffsetCommitResponse = self.handle(
                lambda shard, now_ms, _: shard.offset_requests.commit(request, version, now_ms)
            )
        except Refused as refusal:
            return refusal.error
        (error,) = {Error(one.error_code) for topic in response.topics for one in topic.partitions}
        return error

    def commit_in_transaction(
        self,
        offsets: dict[tuple[str, int], int],
        producer_id: int,
        *,
        group: str = "g",
        member_id: str = "",
        generation: int = -1,
    ) -> Error:
        request = TxnOffsetCommitRequest(
            transactional_id="id",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id=generation,
            member_id=member_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=None
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        try:
            response = self.handle(
                lambda shard, now_ms, _: shard.offset_requests.commit_in_transaction(request, {}, 5, now_ms),
                producer_id,
            )
        except Refused as refusal:
            return refusal.error
        return Error(response.topics[0].partitions[0].error_code)

    def fetch(
        self, topic: str = "t", index: int = 0, *, group: str = "g", stable: bool = False, topic_id: bytes = bytes(16)
    ) -> tuple[int, Error]:
        asked = OffsetFetchRequestGroup(
            group_id=group,
            topics=[OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[index])],
        )
        partition = self.shard.offset_requests.fetch(asked, require_stable=stable).topics[0].partitions[0]
        return partition.committed_offset, Error(partition.error_code)


def durable(shard: GroupShard) -> dict[str, Any]:
    """What the log says, as the shard has it."""
    return {
        "groups": {group_id: getattr(group, "written", None) for group_id, group in sorted(shard.groups.items())},
        "offsets": shard.offsets.by_group,
        "pending": shard.offsets.pending,
    }
