"""A shard of groups with its log, topics to subscribe to, and clients that send heartbeats."""

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

from ottla.config import Config
from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.consumer.group import ConsumerGroup
from ottla.core.groups.consumer.topics import TopicView
from ottla.core.groups.group import GroupClient
from ottla.core.groups.settings import GroupSettings
from ottla.core.groups.shard import GroupShard
from ottla.core.metadata.image import GROUP, Image
from ottla.core.metadata.records import MetadataRecord
from ottla.core.runtime.decision import Decision, Token
from ottla.core.runtime.shard import CoordinatorRecord, RecordOrigin, RecordRun, RecordTypes, encode_record
from ottla.wire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.records import consumer_groups, groups
from ottla.wire.records.metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

TYPES = RecordTypes(groups, consumer_groups)
HEARTBEAT_MS = 5_000
SESSION_MS = 45_000
ASSIGNMENT_MS = 1_000


class Topics:
    """The metadata as groups see it."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.view = TopicView(Image())
        self._ids = count(1)
        for name, partitions in sizes.items():
            self.create(name, partitions)

    def create(self, name: str, partitions: int) -> bytes:
        topic_id = bytes(14) + next(self._ids).to_bytes(2, "big")
        self._commit(
            TopicRecord(name=name, topic_id=topic_id), *(_partition(topic_id, index) for index in range(partitions))
        )
        return topic_id

    def grow(self, name: str, to: int) -> None:
        topic = self.view.image.topics[name]
        self._commit(*(_partition(topic.topic_id, index) for index in range(len(topic.partitions), to)))

    def delete(self, name: str) -> None:
        self._commit(RemoveTopicRecord(topic_id=self.id_of(name)))

    def configure(self, group_id: str, name: str, value: str) -> None:
        self._commit(ConfigRecord(resource_type=GROUP, resource_name=group_id, name=name, value=value))

    def id_of(self, name: str) -> bytes:
        return self.view.image.topics[name].topic_id

    def _commit(self, *records: MetadataRecord) -> None:
        for record in records:
            self.view.image.replay(record)
        self.view.changed(records)


def _partition(topic_id: bytes, index: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[1],
        isr=[1],
        removing_replicas=[],
        adding_replicas=[],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    )


def _decoded(key: bytes, value: bytes | None) -> CoordinatorRecord:
    record = TYPES.decode(key, value)
    assert record is not None
    return record


class Coordinator:
    """A shard, decided, replayed and logged as the runtime does it."""

    def __init__(self, sizes: Mapping[str, int] | None = None, settings: Mapping[str, str] | None = None) -> None:
        self.topics = Topics({} if sizes is None else sizes)
        self.config = Config.of(broker=dict(settings or {}))
        self.now_ms = 1_000_000
        self.log: list[CoordinatorRecord] = []
        self.told: dict[Token, Any] = {}
        self._tokens = count(1)
        self._uuids = count(1)
        self.shard = self._empty()
        self.shard.loaded(self.now_ms)

    def _empty(self) -> GroupShard:
        return GroupShard(
            GroupSettings.of(self.config, 1_000_000),
            lambda: f"uuid-{next(self._uuids)}",
            lambda: self.config,
            self.topics.view,
        )

    def decide(self, handle: Callable[[GroupShard, int, Token], Decision[Any]]) -> Any:
        token = Token(next(self._tokens))
        return self._take(handle(self.shard, self.now_ms, token))

    def _take(self, decision: Decision[Any]) -> Any:
        records, first_offset = decision.records, len(self.log)
        # Through its bytes, as a log would have it.
        if isinstance(records, RecordRun):
            self.log += [_decoded(*encoded) for encoded in zip(records.keys, records.values, strict=True)]
            records.replay(self.shard, first_offset)
        else:
            self.log += [_decoded(*encode_record(record)) for record in records]
            for offset, record in enumerate(records, first_offset):
                self.shard.replay(record, RecordOrigin(offset, self.now_ms))
        if decision.accept is not None:
            decision.accept()
        self.told.update(decision.wake)
        return decision.reply

    def tick(self) -> None:
        self._take(self.shard.tick(self.now_ms))

    def settle(self) -> None:
        """Do what is due now, until nothing is."""
        while (at_ms := self.shard.next_deadline()) is not None and at_ms <= self.now_ms:
            self.tick()

    def advance(self, ms: int) -> None:
        """Time passes, and what is due is done when it is."""
        end_ms = self.now_ms + ms
        while (at_ms := self.shard.next_deadline()) is not None and at_ms <= end_ms:
            self.now_ms = max(at_ms, self.now_ms)
            self._take(self.shard.tick(self.now_ms))
        self.now_ms = end_ms

    def loaded_from(self, log: Iterable[CoordinatorRecord]) -> GroupShard:
        shard = self._empty()
        for offset, record in enumerate(log):
            shard.replay(record, RecordOrigin(offset, 0))
        return shard

    def restart(self) -> None:
        """Another coordinator takes over: what is not in the log is gone."""
        self.shard = self.loaded_from(self.log)
        self._take(self.shard.loaded(self.now_ms))

    def group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.shard.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def client(self, member_id: str, **subscription: Any) -> "Consumer":
        return Consumer(self, member_id, **subscription)

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        client = GroupClient("client", "/127.0.0.1", version)
        response: ConsumerGroupHeartbeatResponse = self.decide(
            lambda shard, now_ms, _: shard.consumer.heartbeat(request, client, now_ms)
        )
        self.settle()
        return response


class Consumer:
    """A client of the consumer protocol that does what it is told."""

    def __init__(
        self,
        coordinator: Coordinator,
        member_id: str,
        topics: list[str] | None = None,
        regex: str | None = None,
        group_id: str = "g",
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.member_id = member_id
        self.topics = topics
        self.regex = regex
        self.group_id = group_id
        self.instance_id = instance_id
        self.assignor = assignor
        self.epoch = 0
        self.owned: dict[bytes, set[int]] = {}

    def request(self, **changes: Any) -> ConsumerGroupHeartbeatRequest:
        joins = self.epoch == 0
        fields: dict[str, Any] = {
            "group_id": self.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance_id,
            "rebalance_timeout_ms": 30_000 if joins else -1,
            "subscribed_topic_names": self.topics if joins else None,
            "subscribed_topic_regex": self.regex if joins else None,
            "server_assignor": self.assignor if joins else None,
            "topic_partitions": [] if joins else self._reported(),
        }
        return ConsumerGroupHeartbeatRequest(**(fields | changes))

    def _reported(self) -> list[TopicPartitions]:
        return [TopicPartitions(topic_id=topic, partitions=sorted(owned)) for topic, owned in self.owned.items()]

    def send(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat; then it owns what the answer says."""
        response = self.coordinator.heartbeat(self.request(**changes))
        self.take(response)
        return response

    def take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = {one.topic_id: set(one.partitions) for one in response.assignment.topic_partitions}

    def leave(self) -> None:
        self.coordinator.heartbeat(self.request(member_epoch=-2 if self.instance_id else -1, topic_partitions=None))
        self.epoch, self.owned = 0, {}

    def partitions(self, topic: str) -> list[int]:
        return sorted(self.owned.get(self.coordinator.topics.id_of(topic), ()))


def settle_all(coordinator: Coordinator, *consumers: Consumer, rounds: int = 6) -> None:
    """Heartbeats until everything has come to rest."""
    for _ in range(rounds):
        coordinator.advance(HEARTBEAT_MS)
        for consumer in consumers:
            consumer.send()


def durable(shard: GroupShard) -> dict[str, Any]:
    """All that a shard's log says of its groups."""
    found: dict[str, Any] = {}
    for group_id, group in sorted(shard.groups.items()):
        if isinstance(group, ConsumerGroup):
            state = dict(vars(group))
            for volatile in ("refresh_at_ms", "seen_changes", "seen_epoch", "_balance"):
                del state[volatile]
            found[group_id] = state
        elif isinstance(group, ClassicGroup):
            found[group_id] = group.written
    return found
