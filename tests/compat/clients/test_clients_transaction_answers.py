"""Requests about transactions, one by one, in every version: Ottla answers them as Kafka does, field by field.

The conversation is the same with both; producer ids are told apart by the order they came in, and times are left out.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from nodes.topics import Server, Topics
from nodes.wire import Wire, batch_of
from peers.broker import wait_until
from peers.client import Client

from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.api.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.list_transactions import ListTransactionsRequest
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.api.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.errors import Error
from ottla.wire.schema import Struct, message_of

Identity = tuple[int, int]
NOBODY: Identity = (-1, -1)
FORGED_EPOCH = 1_005
"""Of a coordinator that is none; real ones stay below."""
STRANGER: Identity = (2**40, 0)
GROUP, TRANSACTION = 0, 1
PARTITIONS = 3
TIMES = ("transaction_start_time_ms", "last_timestamp")
V1_PARTITIONS, V1_END, V2_END = 3, 4, 5
"""Versions of AddPartitionsToTxn and of EndTxn: the last before every end raises the epoch, and the first after."""


class Talk:
    """One conversation with a server; `said` is what it answered, without what no two servers share."""

    def __init__(self, server: Server, name: str) -> None:
        self.wire = Wire(server.bootstrap)
        self.id = self.group = self.topic = name
        self.said: list[str] = []
        self._producers: dict[int, str] = {}
        wait_until(self._has_producer_ids, "the server has producer ids to give")
        wait_until(lambda: self._is_coordinated(TRANSACTION), "the transactional id has a coordinator")
        wait_until(lambda: self._is_coordinated(GROUP), "the group has a coordinator")

    def _has_producer_ids(self) -> bool:
        """Also has the id taken that is 0, as what is not told is."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        return bool(self.wire.call(request, 4).error_code == Error.NONE)

    def _is_coordinated(self, kind: int) -> bool:
        found = self.wire.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[self.id]), 4).coordinators[0]
        if found.error_code:
            return False
        if kind == TRANSACTION:
            return self.state() != ""
        asked = OffsetFetchRequestGroup(group_id=self.group, topics=None)
        return bool(self.wire.call(OffsetFetchRequest(groups=[asked]), 8).groups[0].error_code == Error.NONE)

    def state(self, transactional_id: str | None = None) -> str:
        """Of the transaction; empty while its coordinator loads."""
        asked = DescribeTransactionsRequest(transactional_ids=[transactional_id or self.id])
        (told,) = self.wire.call(asked, 0).transaction_states
        if told.error_code == Error.TRANSACTIONAL_ID_NOT_FOUND:
            return "None"
        return str(told.transaction_state)

    def settle(self, transactional_id: str | None = None) -> None:
        """Wait for the markers: what is answered meanwhile depends on the time they take."""
        wait_until(lambda: not self.state(transactional_id).startswith("Prepare"), "the transaction has ended")

    def ask(self, request: Any, version: int) -> Any:
        answer = self.wire.call(request, version)
        self.said.append(f"{type(request).__name__} v{version}: {self._told(answer)}")
        return answer

    def _told(self, answer: Any, name: str = "") -> str:
        """Kafka answers about several things in any order."""
        if isinstance(answer, Struct):
            fields = [f"{one}={self._told(getattr(answer, one), one)}" for one in answer.__slots__]
            return f"({', '.join(fields)})"
        if isinstance(answer, list):
            return f"[{', '.join(sorted(self._told(one) for one in answer))}]"
        if name == "producer_id" and answer not in (0, *NOBODY, *STRANGER):
            return self._producers.setdefault(answer, f"<producer {len(self._producers)}>")
        if name == "coordinator_epoch" and 0 <= answer < FORGED_EPOCH - 1:
            return "<epoch>"  # A broker on a busy machine may have lost the lead and taken it again.
        return "<time>" if name in TIMES and answer > 0 else repr(answer)

    # Requests.

    def init(self, version: int = 4, expected: Identity = NOBODY, **fields: Any) -> Identity:
        said: dict[str, Any] = {"transactional_id": self.id, "transaction_timeout_ms": 60_000} | fields
        if version >= 3:
            said |= {"producer_id": expected[0], "producer_epoch": expected[1]}
        told = self.ask(InitProducerIdRequest(**said), version)
        return told.producer_id, told.producer_epoch

    def add(
        self, version: int, who: Identity, *places: tuple[str, int], name: str | None = None, verify: bool = False
    ) -> Any:
        wanted = self._enlistment(who, places or ((self.topic, 0),), self.id if name is None else name, verify)
        if version > V1_PARTITIONS:
            return self.ask(AddPartitionsToTxnRequest(transactions=[wanted]), version)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=wanted.transactional_id,
            v3_and_below_producer_id=wanted.producer_id,
            v3_and_below_producer_epoch=wanted.producer_epoch,
            v3_and_below_topics=wanted.topics,
        )
        return self.ask(request, version)

    def add_to_several(self, version: int, **producers: Identity) -> Any:
        place = (self.topic, 1)
        wanted = [self._enlistment(who, (place,), name, verify=False) for name, who in producers.items()]
        return self.ask(AddPartitionsToTxnRequest(transactions=wanted), version)

    def _enlistment(
        self, who: Identity, places: tuple[tuple[str, int], ...], name: str, verify: bool
    ) -> AddPartitionsToTxnTransaction:
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(index)
        return AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=who[0],
            producer_epoch=who[1],
            verify_only=verify,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=found) for topic, found in topics.items()],
        )

    def add_offsets(self, version: int, who: Identity, **fields: Any) -> Any:
        said: dict[str, Any] = {"transactional_id": self.id, "group_id": self.group} | fields
        return self.ask(AddOffsetsToTxnRequest(producer_id=who[0], producer_epoch=who[1], **said), version)

    def commit_offsets(self, version: int, who: Identity, **fields: Any) -> Any:
        partitions = [
            TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=index + 5, committed_leader_epoch=2, committed_metadata=text
            )
            for index, text in ((0, "meta"), (1, None), (2, "x" * 5000), (99, ""))
        ]
        topics = [TxnOffsetCommitRequestTopic(name=name, partitions=partitions) for name in (self.topic, "absent")]
        said: dict[str, Any] = {"transactional_id": self.id, "group_id": self.group, "topics": topics} | fields
        return self.ask(TxnOffsetCommitRequest(producer_id=who[0], producer_epoch=who[1], **said), version)

    def offsets(self, *, stable: bool) -> Any:
        asked = OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0, 1, 2])
        group = OffsetFetchRequestGroup(group_id=self.group, topics=[asked])
        return self.ask(OffsetFetchRequest(groups=[group], require_stable=stable), 9)

    def end(self, version: int, who: Identity, *, commit: bool, **fields: Any) -> Identity:
        """Whom the client goes on as."""
        said: dict[str, Any] = {"transactional_id": self.id} | fields
        told = self.ask(EndTxnRequest(producer_id=who[0], producer_epoch=who[1], committed=commit, **said), version)
        if told.error_code == Error.NONE:
            self.settle()
        is_new = version >= V2_END and told.error_code == Error.NONE
        return (told.producer_id, told.producer_epoch) if is_new else who

    def produce(
        self, version: int, who: Identity, *, sequence: int = 0, partition: int = 0, name: str | None = None
    ) -> Any:
        batch = batch_of([b"v"], producer_id=who[0], epoch=who[1], sequence=sequence, transactional=True)
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=self.id if name is None else name,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
        )
        (told,) = self.wire.call(request, version).responses[0].partition_responses
        self.said.append(f"Produce v{version}: {Error(told.error_code).name} at {told.base_offset}")
        return told

    def mark(self, version: int, who: Identity, *places: tuple[str, int], **fields: Any) -> Any:
        said: dict[str, Any] = {"transaction_result": False, "coordinator_epoch": 0} | fields
        topics = [WritableTxnMarkerTopic(name=topic, partition_indexes=[index]) for topic, index in places]
        marker = WritableTxnMarker(producer_id=who[0], producer_epoch=who[1], topics=topics, **said)
        return self.ask(WriteTxnMarkersRequest(markers=[marker]), version)

    def describe(self, *names: str) -> None:
        answer = self.wire.call(DescribeTransactionsRequest(transactional_ids=list(names or (self.id,))), 0)
        for topic in (topic for state in answer.transaction_states for topic in state.topics):
            if topic.topic == "__consumer_offsets":
                topic.partitions = []  # How many there are to choose from is a setting.
        self.said.append(f"DescribeTransactions: {self._told(answer)}")

    def describe_producers(self, *places: tuple[str, int]) -> None:
        topics = [TopicRequest(name=topic, partition_indexes=[index]) for topic, index in places or ((self.topic, 0),)]
        answer = self.wire.call(DescribeProducersRequest(topics=topics), 0)
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.error_message = None  # Words are each server's own.
        self.said.append(f"DescribeProducers: {self._told(answer)}")

    def listed(self, version: int, **filters: Any) -> Any:
        return self.ask(ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": []} | filters), version)


def versions(request: type) -> range:
    """Those that a released server speaks."""
    facts = message_of(request)
    return facts.versions[:-1] if facts.unstable else facts.versions


# Conversations.


def identities(talk: Talk, version: int) -> None:
    talk.init(version, transactional_id=None)
    talk.init(version, transactional_id="")
    for timeout_ms in (0, -1, 900_001, 2**31 - 1):
        talk.init(version, transaction_timeout_ms=timeout_ms)
    first, second = talk.init(version), talk.init(version)
    talk.add(3, first)
    talk.end(V1_END, first, commit=True)
    if version < 3:
        return
    talk.init(version, (-1, 5))
    talk.init(version, (5, -1))
    third = talk.init(version, second)
    for expected in (second, first, STRANGER, (third[0], third[1] + 1)):
        talk.init(version, expected)
    talk.init(version)
    talk.init(version, second)


def identities_while_open(talk: Talk, version: int) -> None:
    """Whoever asks, what is open is aborted first; who is outdated hears of it when that is done."""
    outdated, current = talk.init(version), talk.init(version)
    talk.add(V1_PARTITIONS, current)
    talk.init(version, STRANGER)
    for expected in (outdated, NOBODY, None):
        talk.add(V1_PARTITIONS, current)
        talk.init(version, expected or current)
        talk.settle()
        talk.describe()
        talk.init(version, expected or current)
        current = talk.init(version)


def partitions(talk: Talk, version: int) -> None:
    talk.add(version, STRANGER)
    talk.add(version, STRANGER, name="")
    outdated, current = talk.init(), talk.init()
    for wrong in (outdated, STRANGER, (current[0], current[1] + 1)):
        talk.add(version, wrong)
    talk.add(version, current, (talk.topic, 0), (talk.topic, 99), ("absent", 0))
    talk.describe()
    talk.add(version, current, (talk.topic, 0), (talk.topic, 1))
    talk.add(version, current, (talk.topic, 0))
    talk.describe()
    if version > V1_PARTITIONS:
        several_partitions(talk, version, outdated, current)
    after = talk.end(V1_END if version <= V1_PARTITIONS else V2_END, current, commit=True)
    talk.add(version, current)
    talk.add(version, after)


def several_partitions(talk: Talk, version: int, outdated: Identity, current: Identity) -> None:
    for who in (current, outdated, STRANGER):
        talk.add(version, who, (talk.topic, 0), (talk.topic, 2), verify=True)
    talk.add(version, current, (talk.topic, 0), ("absent", 0), verify=True)
    talk.add(version, current, (talk.topic, 0), name="unknown", verify=True)
    talk.add(version, current, (talk.topic, 0), name="", verify=True)
    other = talk.init(transactional_id=f"{talk.id}-other")
    talk.add_to_several(version, **{talk.id: current, f"{talk.id}-other": other, "unknown": STRANGER})


def offsets(talk: Talk, version: int) -> None:
    """AddOffsetsToTxn and TxnOffsetCommit of a version, and the end that goes with them."""
    adding, is_v2 = min(version, 4), version >= 5
    talk.add_offsets(adding, STRANGER)
    talk.add_offsets(adding, STRANGER, transactional_id="")
    outdated, current = talk.init(), talk.init()
    for wrong in (outdated, STRANGER):
        talk.add_offsets(adding, wrong)
        talk.commit_offsets(version, wrong)
    for name in ("", "unknown"):
        talk.commit_offsets(version, current, transactional_id=name)
    talk.commit_offsets(version, current)
    talk.describe()
    if not is_v2:
        talk.add_offsets(adding, current, group_id="")
        talk.add_offsets(adding, current)
        talk.commit_offsets(version, current)
    talk.commit_offsets(version, current, group_id="")
    if version >= 3:
        talk.commit_offsets(version, current, generation_id=1, member_id="stranger")
        talk.commit_offsets(version, current, generation_id=1)
        talk.commit_offsets(version, current, member_id="stranger")
        talk.commit_offsets(version, current, generation_id=1, member_id="stranger", group_instance_id="one")
    talk.offsets(stable=True)
    talk.offsets(stable=False)
    after = talk.end(V2_END if is_v2 else V1_END, current, commit=True)
    talk.offsets(stable=True)
    talk.commit_offsets(version, outdated)
    talk.commit_offsets(version, after, topics=[])


def ends(talk: Talk, version: int) -> None:
    for name in (talk.id, ""):
        talk.end(version, STRANGER, commit=True, transactional_id=name)
    outdated, current = talk.init(), talk.init()
    talk.end(version, current, commit=True)
    current = talk.end(version, current, commit=False)
    for commit in (True, False):
        talk.add(V1_PARTITIONS if version < V2_END else 5, current)
        for wrong in (outdated, STRANGER, (current[0], current[1] + 1)):
            talk.end(version, wrong, commit=commit)
        before, current = current, talk.end(version, current, commit=commit)
        talk.describe()
        talk.end(version, before, commit=commit)
        talk.end(version, before, commit=not commit)
        talk.end(version, current, commit=True)
        current = talk.end(version, current, commit=False)
        current = talk.init()


def looking(talk: Talk) -> None:
    other = f"{talk.id}-other"
    who, second = talk.init(), talk.init(transactional_id=other)
    talk.describe(talk.id, other, "unknown", "")
    talk.add(V1_PARTITIONS, who, (talk.topic, 2), (talk.topic, 0))
    talk.describe(talk.id, talk.id)
    ours: dict[str, Any] = {"producer_id_filters": [who[0], second[0]]}
    for version in versions(ListTransactionsRequest):
        talk.listed(version, **ours)
        for states in (["Ongoing"], ["Empty", "CompleteAbort"], ["ongoing", "Nonsense"]):
            talk.listed(version, state_filters=states, **ours)
        talk.listed(version, producer_id_filters=[STRANGER[0]])
        if version >= 1:
            for duration in (-5, 0, 3_600_000):
                talk.listed(version, duration_filter=duration, **ours)
        if version >= 2:
            for pattern in (talk.id, f"{talk.id}.*", "other", "", "(", None):
                talk.listed(version, transactional_id_pattern=pattern, **ours)


def markers(talk: Talk, version: int) -> None:
    here = (talk.topic, 0)
    outdated, who = talk.init(), talk.init()
    talk.mark(version, who, ("absent", 0), (talk.topic, 99))
    talk.describe_producers(here, ("absent", 0), (talk.topic, 99))
    talk.add(V1_PARTITIONS, who, here)
    talk.produce(11, who)
    talk.describe_producers()
    talk.mark(version, outdated, here)
    talk.mark(version, who, here, coordinator_epoch=FORGED_EPOCH)
    talk.describe_producers()
    talk.produce(11, who, sequence=1)
    talk.describe_producers()
    talk.mark(version, who, here, coordinator_epoch=FORGED_EPOCH - 1)
    talk.mark(version, (who[0], who[1] + 1), here, coordinator_epoch=FORGED_EPOCH, transaction_result=True)
    talk.describe_producers()
    talk.mark(version, STRANGER, here)
    if version >= 2:
        latest = (who[0], who[1] + 1)
        talk.mark(version, latest, here, coordinator_epoch=FORGED_EPOCH, transaction_version=2)
        talk.mark(version, (who[0], who[1] + 2), here, coordinator_epoch=FORGED_EPOCH, transaction_version=2)
        talk.describe_producers()
    talk.ask(WriteTxnMarkersRequest(markers=[]), version)


def records(talk: Talk, version: int) -> None:
    """Produce in a transaction: before version 12 partitions are added first."""
    outdated, current = talk.init(), talk.init()
    for name in ("unknown", ""):
        talk.produce(version, current, name=name)
    talk.produce(version, outdated)
    adds = version >= 12
    talk.produce(version, current)
    talk.describe()
    if not adds:
        talk.add(V1_PARTITIONS, current)
        talk.produce(version, current)
    talk.produce(version, current, partition=1)
    talk.produce(version, current, sequence=1)
    talk.describe_producers()
    after = talk.end(V2_END if adds else V1_END, current, commit=True)
    talk.describe_producers()
    talk.produce(version, current, sequence=2)
    talk.produce(version, after, sequence=0 if adds else 2)
    talk.describe()


Conversation = Callable[[Talk], None]


def in_versions(name: str, act: Callable[..., None], which: range) -> dict[str, Conversation]:
    return {f"{name} v{version}": partial(act, version=version) for version in which}


CONVERSATIONS: dict[str, Conversation] = (
    {"looking": looking}
    | in_versions("identities", identities, versions(InitProducerIdRequest))
    | in_versions("identities while open", identities_while_open, versions(InitProducerIdRequest)[3:])
    | in_versions("partitions", partitions, versions(AddPartitionsToTxnRequest))
    | in_versions("offsets", offsets, versions(TxnOffsetCommitRequest))
    | in_versions("ends", ends, versions(EndTxnRequest))
    | in_versions("markers", markers, versions(WriteTxnMarkersRequest))
    | in_versions("records", records, range(9, 13))
)


@pytest.mark.parametrize("conversation", list(CONVERSATIONS))
def test_ottla_answers_as_kafka_does(ottla: Server, kafka: Server, topics: Topics, conversation: str) -> None:
    name = topics.name()
    said = []
    for server in (kafka, ottla):
        Client(server.bootstrap).create_topics({name: {}}, {name: PARTITIONS})
        talk = Talk(server, name)
        with talk.wire:
            CONVERSATIONS[conversation](talk)
        said.append(talk.said)
    theirs, ours = said
    assert ours == theirs
