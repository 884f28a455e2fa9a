"""What requests speak of: topics with records, groups with members, producers, transactions. Alike on both servers.

Every world has names of its own, so that the next one does not meet what the last one left.
"""

from collections.abc import Iterable
from typing import Any, Final

from odd.peer import Peer
from odd.values import Batch, Given
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.wire.api.delete_topics import DeleteTopicsRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.errors import Error

GROUP, TRANSACTION = 0, 1
PARTITIONS: Final = 2
SUBSCRIPTION: Final = b"\0\0\0\0\0\1\0\5topic\xff\xff\xff\xff"
TOPICS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "limited": {"max.message.bytes": "300", "message.timestamp.type": "LogAppendTime"},
    "txn": {},
    "victim": {},
    "gone": {},
}
PRODUCERS: Final = ("idle", "open", "done", "idempotent")


class World:
    """The names of what there is. `build` makes it on a server, and keeps there what the server gave."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def named(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    @property
    def topics(self) -> list[str]:
        return [self.named(name) for name in TOPICS]

    def build(self, peer: Peer) -> None:
        peer.given.clear()
        self.make_topics(peer)
        _wait_for_coordinators(peer, self.named("classic"), self.named("open"))
        self._make_producers(peer)
        self._write(peer)
        self._make_transactions(peer)
        self._make_groups(peer)
        self._open_session(peer)
        # The odd requests begin on a connection that nothing was sent on.
        peer.close()

    def make_topics(self, peer: Peer) -> None:
        topics = [
            CreatableTopic(
                name=self.named(name),
                num_partitions=PARTITIONS,
                replication_factor=1,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
            )
            for name, settings in TOPICS.items()
        ]
        for told in peer.call(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7).topics:
            assert told.error_code == Error.NONE, told
            peer.given["topic_id", told.name] = told.topic_id
        wait_until_led(peer, self.topics)
        peer.call(DeleteTopicsRequest(topic_names=[self.named("gone")], timeout_ms=30_000), 5)
        peer.settle_metadata()

    def _make_producers(self, peer: Peer) -> None:
        for name in PRODUCERS:
            transactional_id = None if name == "idempotent" else self.named(name)
            told: list[Any] = []

            def has_one(transactional_id: str | None = transactional_id, told: list[Any] = told) -> bool:
                request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
                told[:] = [peer.call(request, 4)]
                return bool(told[0].error_code == Error.NONE)

            peer.wait(has_one, "a producer id")
            remember_producer(peer, self.named(name), told[0])

    def _write(self, peer: Peer) -> None:
        plain, compacted = self.named("plain"), self.named("compacted")
        for number in range(4):
            write(peer, plain, Batch(values=(b"a", b"b", b"c"), timestamp=1_600_000_000_000 + number * 1000))
        write(peer, compacted, Batch(values=(b"1", b"2"), keys=(b"x", b"y")))
        write(peer, compacted, Batch(values=(b"3", None), keys=(b"x", b"y")))
        who = self.named("idempotent")
        for sequence in range(7):
            write(peer, self.named("victim"), _of(who, sequence=sequence))

    def _make_transactions(self, peer: Peer) -> None:
        txn = self.named("txn")
        for name, ends in (("done", True), ("open", False)):
            self._add(peer, name, txn)
            write(peer, txn, _of(self.named(name), sequence=0, transactional=True), transactional_id=self.named(name))
            if ends:
                self._end(peer, name)

    def _add(self, peer: Peer, name: str, topic: str) -> None:
        wanted = AddPartitionsToTxnTransaction(
            transactional_id=self.named(name),
            producer_id=Given("producer_id", self.named(name)),  # type: ignore[arg-type]
            producer_epoch=Given("producer_epoch", self.named(name)),  # type: ignore[arg-type]
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=wanted.transactional_id,
            v3_and_below_producer_id=wanted.producer_id,
            v3_and_below_producer_epoch=wanted.producer_epoch,
            v3_and_below_topics=wanted.topics,
        )

        def is_added() -> bool:
            (told,) = peer.call(request, 3).results_by_topic_v3_and_below
            return bool(told.results_by_partition[0].partition_error_code == Error.NONE)

        peer.wait(is_added, "the partition is part of the transaction")

    def _end(self, peer: Peer, name: str) -> None:
        request = EndTxnRequest(
            transactional_id=self.named(name),
            producer_id=Given("producer_id", self.named(name)),  # type: ignore[arg-type]
            producer_epoch=Given("producer_epoch", self.named(name)),  # type: ignore[arg-type]
            committed=True,
        )
        told = peer.call(request, 4)
        assert told.error_code == Error.NONE, told
        settle_transactions(peer, [self.named(name)])

    def _make_groups(self, peer: Peer) -> None:
        self._commit(peer, self.named("simple"))
        self._join_classic(peer)
        self._join_consumer(peer)

    def _commit(self, peer: Peer, group: str) -> None:
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=index + 5, committed_metadata="note")
            for index in range(PARTITIONS)
        ]
        topic = OffsetCommitRequestTopic(name=self.named("plain"), partitions=partitions)
        request = OffsetCommitRequest(group_id=group, member_id="", topics=[topic])
        for told in peer.call(request, 8).topics[0].partitions:
            assert told.error_code == Error.NONE, told

    def _join_classic(self, peer: Peer) -> None:
        """Until the member has its assignment in time. The time is short, because whoever joins later waits for it."""
        group = self.named("classic")
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=1000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        )

        def has_joined() -> bool:
            joined = peer.call(join, 3)
            assert joined.error_code == Error.NONE, joined
            peer.given["member_id", group] = joined.member_id
            peer.given["generation", group] = joined.generation_id
            sync = SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"mine")],
            )
            return bool(peer.call(sync, 3).error_code == Error.NONE)

        peer.wait(has_joined, "a member of the classic group has joined")

    def _join_consumer(self, peer: Peer) -> None:
        group = self.named("consumer")
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=group,
            member_epoch=0,
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=[self.named("victim")],
            topic_partitions=[],
        )
        told = peer.call(request, 1)
        assert told.error_code == Error.NONE, told
        peer.given["member_id", group] = group
        peer.given["generation", group] = told.member_epoch

    def _open_session(self, peer: Peer) -> None:
        asked = FetchTopic(
            topic=self.named("plain"),
            partitions=[FetchPartition(partition=0, fetch_offset=12, partition_max_bytes=1000)],
        )
        told = peer.call(FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[asked]), 12)
        assert told.error_code == Error.NONE, told
        peer.given["session_id", self.named("session")] = told.session_id


def remember_producer(peer: Peer, name: str, told: Any) -> None:
    peer.given["producer_id", name] = told.producer_id
    peer.given["producer_epoch", name] = told.producer_epoch


def _of(producer: str, **fields: Any) -> Batch:
    return Batch(producer_id=Given("producer_id", producer), epoch=Given("producer_epoch", producer), **fields)


def write(peer: Peer, topic: str, batch: Batch, *, partition: int = 0, transactional_id: str | None = None) -> None:
    data = PartitionProduceData(index=partition, records=batch)  # type: ignore[arg-type]
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    (told,) = peer.call(request, 9).responses[0].partition_responses
    assert told.error_code == Error.NONE, (peer.name, told)


def wait_until_led(peer: Peer, topics: Iterable[str]) -> None:
    """Kafka tells of a topic a moment before it leads its partitions."""
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(PARTITIONS)],
            )
            for topic in topics
        ],
    )

    def all_led() -> bool:
        told = peer.call(request, 4)
        return all(one.error_code == Error.NONE for topic in told.topics for one in topic.partitions)

    peer.wait(all_led, "all partitions are led")


def settle_transactions(peer: Peer, transactional_ids: Iterable[str]) -> None:
    """Until no markers are to be written any more: what is answered meanwhile depends on the time they take."""

    def is_settled() -> bool:
        states = peer.call(DescribeTransactionsRequest(transactional_ids=list(transactional_ids)), 0).transaction_states
        return not any(one.transaction_state.startswith("Prepare") for one in states)

    peer.wait(is_settled, "the transactions have ended")


def _wait_for_coordinators(peer: Peer, group: str, transactional_id: str) -> None:
    def is_found(kind: int, key: str) -> bool:
        (found,) = peer.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4).coordinators
        return bool(found.error_code == Error.NONE)

    def group_is_loaded() -> bool:
        return bool(peer.call(DescribeGroupsRequest(groups=[group]), 0).groups[0].error_code == Error.NONE)

    def transactions_are_loaded() -> bool:
        (told,) = peer.call(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states
        return bool(told.error_code in (Error.NONE, Error.TRANSACTIONAL_ID_NOT_FOUND))

    peer.wait(lambda: is_found(GROUP, group), "the group has a coordinator")
    peer.wait(lambda: is_found(TRANSACTION, transactional_id), "the transactional id has a coordinator")
    peer.wait(group_is_loaded, "the group's coordinator is loaded")
    peer.wait(transactions_are_loaded, "the transaction's coordinator is loaded")
