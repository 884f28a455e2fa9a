"""Requests that name very much are handled in turns, and answered as if they were not."""

from collections.abc import Awaitable, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from broker_transaction_samples import GROUP, ID, TOPIC, Broker, _write_at_once

from ottla.broker.network import backlog
from ottla.broker.network.dispatch import Call, handler_of
from ottla.broker.network.fifo import Fifo
from ottla.broker.partitions.waiters import Waiter
from ottla.kernel import Codec, Record, build_batch
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.loop import run
from ottla.wire.api import ApiKey
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.wire.api.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.api.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.api.describe_topic_partitions import TopicRequest as PartitionsOf
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.list_groups import ListGroupsRequest
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.list_transactions import ListTransactionsRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.api.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.codec import decode, encode
from ottla.wire.errors import Error
from ottla.wire.schema import message_of

MANY = 600
PARTITIONS = 40
T = 1_700_000_000_000
NAMES = [f"unknown-{number}" for number in range(MANY)]
INDEXES = [number % (PARTITIONS + 5) for number in range(MANY)]
"""Each many times, and some that do not exist."""


async def sent(broker: Broker, request: Any, *, is_wide: bool, version: int | None = None) -> Any:
    """The answer to a request as a connection hands it over."""
    facts = message_of(type(request))
    version = facts.versions[-1] if version is None else version
    connection: Any = SimpleNamespace(
        listener="PLAINTEXT", role="broker", peer="h:1", close=lambda: None, hold=_write_at_once, produce_fifo=Fifo()
    )
    assert facts.api_key is not None
    call = Call(broker.node, connection, facts.api_key, version, 1, "c", is_wide=is_wide)
    arrived = decode(type(request), version, bytearray(encode(request, version)))
    response = handler_of(ApiKey(facts.api_key))(arrived, call)
    if isinstance(response, Waiter):
        response = (await response)()
    elif isinstance(response, Awaitable):
        response = await response
    return response


def batch(value: bytes = b"v") -> bytes:
    return bytes(build_batch([Record(0, T, None, value)]))


def creatable(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])


REQUESTS: dict[str, Any] = {
    "metadata by name": MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in [*NAMES, TOPIC, *NAMES]]),
    "metadata by id": MetadataRequest(
        topics=[MetadataRequestTopic(name=None, topic_id=number.to_bytes(16, "big")) for number in range(1, MANY)]
    ),
    "topic partitions": DescribeTopicPartitionsRequest(
        topics=[PartitionsOf(name=name) for name in [*NAMES, TOPIC]], response_partition_limit=30
    ),
    "list offsets": ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=TOPIC, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in INDEXES]
            )
        ],
    ),
    "list offsets of many topics": ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=0)])
            for name in [*NAMES, TOPIC]
        ],
    ),
    "epochs": OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic=TOPIC,
                partitions=[OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in INDEXES],
            )
        ],
    ),
    "delete records": DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=index, offset=0) for index in INDEXES]
            )
        ],
        timeout_ms=1,
    ),
    "log dirs": DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=TOPIC, partitions=INDEXES)]),
    "producers": DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=INDEXES)]),
    "coordinators": FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES),
    "describe groups": DescribeGroupsRequest(groups=[*NAMES, GROUP, GROUP]),
    "describe consumer groups": ConsumerGroupDescribeRequest(
        group_ids=[*NAMES, GROUP], include_authorized_operations=False
    ),
    "delete groups": DeleteGroupsRequest(groups_names=[*NAMES, *NAMES]),
    "list groups": ListGroupsRequest(states_filter=[*NAMES, "Empty"], types_filter=[]),
    "list transactions": ListTransactionsRequest(state_filters=NAMES, producer_id_filters=[]),
    "describe transactions": DescribeTransactionsRequest(transactional_ids=[*NAMES, ID, ID]),
    "describe configs": DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in [*((2, name) for name in NAMES), (2, TOPIC), (2, TOPIC), (4, "1"), (4, "1")]
        ],
        include_synonyms=True,
        include_documentation=True,
    ),
    "alter configs": IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=2,
                resource_name=name,
                configs=[AlterableConfig(name="retention.ms", config_operation=0, value="5")],
            )
            for name in [*NAMES, TOPIC, *NAMES[:10]]
        ],
        validate_only=True,
    ),
    "create topics": CreateTopicsRequest(
        topics=[creatable(name) for name in [*NAMES, "bad name", "a.b", "a_b", *NAMES[:10], TOPIC]], validate_only=True
    ),
    "create partitions": CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=50, assignments=None) for name in [*NAMES, TOPIC, *NAMES[:5]]],
        timeout_ms=1,
        validate_only=True,
    ),
    "features": UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=name, max_version_level=1) for name in NAMES[:90]],
        validate_only=True,
    ),
    "offset commit": OffsetCommitRequest(
        group_id=GROUP,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                topic_id=b"filled in below.",
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="m")
                    for index in INDEXES
                ],
            )
        ],
    ),
    "offset fetch": OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=GROUP,
                topics=[
                    OffsetFetchRequestTopics(topic_id=b"filled in below.", partition_indexes=INDEXES),
                    OffsetFetchRequestTopics(topic_id=b"x" * 16, partition_indexes=INDEXES),
                ],
            ),
            OffsetFetchRequestGroup(group_id=GROUP, topics=None),
            OffsetFetchRequestGroup(group_id=GROUP, topics=None),
        ]
    ),
    "offset delete": OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in INDEXES],
            )
            for name in (TOPIC, "unknown")
        ],
    ),
    "transactional offset commit": TxnOffsetCommitRequest(
        transactional_id=ID,
        group_id=GROUP,
        producer_id=1,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
                    for index in INDEXES
                ],
            )
            for name in (TOPIC, "unknown")
        ],
    ),
    "leave group": LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=name) for name in NAMES]),
    "add partitions": AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=ID,
                producer_id=1,
                producer_epoch=0,
                verify_only=True,
                topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=INDEXES)],
            )
        ]
    ),
    "markers": WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=number,
                producer_epoch=0,
                transaction_result=True,
                coordinator_epoch=0,
                topics=[WritableTxnMarkerTopic(name="unknown", partition_indexes=INDEXES[:10])],
            )
            for number in range(60)
        ]
    ),
    "fetch": FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic_id=number.to_bytes(16, "big"),
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)],
            )
            for number in range(1, MANY)
        ],
    ),
    "produce": ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=[
            TopicProduceData(
                topic_id=number.to_bytes(16, "big"), partition_data=[PartitionProduceData(index=0, records=batch())]
            )
            for number in range(1, MANY)
        ],
    ),
}


FEW_TURNS = ("features", "offset commit", "offset delete", "transactional offset commit", "leave group")
"""They have few elements, or are decided hundreds at a time."""


def played(work: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
    clock = SimClock()

    async def main(_: object) -> None:
        broker = await Broker(clock, auto_create_topics_enable="false").start()
        await broker.prepare(PARTITIONS)
        await work(broker)

    run(main, 0, clock)


def named(broker: Broker, request: Any) -> Any:
    """With the id of the topic, which is not known before."""
    topic_id = broker.node.metadata.image.topics[TOPIC].topic_id
    if isinstance(request, OffsetCommitRequest):
        request.topics[0].topic_id = topic_id
    if isinstance(request, OffsetFetchRequest) and request.groups[0].topics:
        request.groups[0].topics[0].topic_id = topic_id
    return request


@pytest.mark.parametrize("name", REQUESTS)
def test_wide_request_is_handled_in_turns_and_answered_as_ever(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(broker: Broker) -> None:
        request = named(broker, REQUESTS[name])
        await sent(broker, named(broker, REQUESTS["offset commit"]), is_wide=False)
        expected = await sent(broker, request, is_wide=False)
        turns = 0
        turn = broker.node.backlog.turn

        def counted(budget: backlog.Budget) -> Any:
            nonlocal turns
            turns += 1
            return turn(budget)

        if name == "offset delete":
            await sent(broker, named(broker, REQUESTS["offset commit"]), is_wide=False)
        monkeypatch.setattr(broker.node.backlog, "turn", counted)
        monkeypatch.setattr(backlog, "ELEMENTS_PER_TURN", 16)
        monkeypatch.setattr(backlog, "_ELEMENTS_PER_LOOK", 8)
        response = await sent(broker, request, is_wide=True)
        assert in_order(response) == in_order(expected)
        assert turns >= (1 if name in FEW_TURNS else MANY // 64), "it never gave way"

    played(work)


def in_order(response: Any) -> Any:
    """Partitions in their order, and ids that are drawn left out."""
    for topic in getattr(response, "topics", ()):
        if isinstance(topic, CreatableTopicResult):
            topic.topic_id = b""
        if hasattr(topic, "partitions") and topic.partitions and hasattr(topic.partitions[0], "partition_index"):
            topic.partitions = sorted(topic.partitions, key=lambda one: (one.partition_index, one.error_code))
    return response


# What the parts of a request have in common.


def test_topics_of_one_request_are_made_and_deleted_in_parts() -> None:
    async def work(broker: Broker) -> None:
        decided = 0
        controller = broker.node.controller._controller  # type: ignore[attr-defined]
        decide = controller.decide

        def counted(what: Any) -> Any:
            nonlocal decided
            decided += 1
            return decide(what)

        controller.decide = counted
        topics = [creatable(f"t-{number}") for number in range(300)]
        topics[5].configs = [CreatableTopicConfig(name="retention.ms", value="7")]
        made = await sent(broker, CreateTopicsRequest(topics=[*topics, topics[0]]), is_wide=True)
        assert decided >= 300 // 64
        outcome = {one.name: one for one in made.topics}
        assert outcome["t-0"].error_code == Error.INVALID_REQUEST, "it is named twice, in different parts"
        assert {one.error_code for name, one in outcome.items() if name != "t-0"} == {Error.NONE}
        assert len(made.topics) == 300
        assert all(broker.node.partitions.find(f"t-{number}", 0) is not None for number in range(1, 300))
        same = {id(one.configs) for name, one in outcome.items() if name not in ("t-0", "t-5")}
        assert len(same) == 1, "topics with the same settings share their description"
        assert ("retention.ms", "7") in [(one.name, one.value) for one in outcome["t-5"].configs]
        decided = 0
        doomed = [DeleteTopicState(name=f"t-{number}", topic_id=bytes(16)) for number in range(300)]
        gone = await sent(broker, DeleteTopicsRequest(topics=[*doomed, doomed[7]], timeout_ms=1), is_wide=True)
        assert decided >= 300 // 64
        errors = {one.name: Error(one.error_code) for one in gone.responses}
        assert errors.pop("t-0") is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert errors.pop("t-7") is Error.INVALID_REQUEST
        assert set(errors.values()) == {Error.NONE}
        assert sorted(broker.node.metadata.image.topics) == ["__consumer_offsets", "__transaction_state", TOPIC, "t-7"]

    played(work)


def test_ten_thousand_partitions_are_the_limit_of_a_request_and_not_of_its_parts() -> None:
    async def work(broker: Broker) -> None:
        topics = [creatable(f"t-{number}") for number in range(101)]
        for topic in topics:
            topic.num_partitions = 100
        made = await sent(broker, CreateTopicsRequest(topics=topics), is_wide=True)
        assert {one.error_code for one in made.topics} == {Error.POLICY_VIOLATION}
        assert len(made.topics) == 101
        assert "t-0" not in broker.node.metadata.image.topics

    played(work)


def test_descriptions_of_the_same_settings_are_shared() -> None:
    """A broker described 5,000 times, in 25 kB, took two gigabytes."""

    async def work(broker: Broker) -> None:
        resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        told = await sent(broker, DescribeConfigsRequest(resources=[resource] * 5_000), is_wide=True)
        assert len(told.results) == 5_000
        assert len({id(one.configs) for one in told.results}) == 1
        some = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=["node.id"])
        mixed = await sent(broker, DescribeConfigsRequest(resources=[some, resource, some]), is_wide=False)
        assert [len(one.configs) == 1 for one in mixed.results] == [True, False, True]

    played(work)


def test_settings_are_described_up_to_a_number() -> None:
    """Of different keys each, a request of some megabytes would have an answer of hundreds."""

    async def work(broker: Broker) -> None:
        keys = [entry.name for entry in (await described(broker, None))]
        resources = [
            DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=[*keys, f"x{number}"])
            for number in range(300)
        ]
        told = await sent(broker, DescribeConfigsRequest(resources=resources), is_wide=True)
        errors = [one.error_code for one in told.results]
        assert errors[0] == Error.NONE
        assert errors[-1] == Error.INVALID_REQUEST
        assert sum(len(one.configs) for one in told.results) < 51_000

    async def described(broker: Broker, keys: list[str] | None) -> Any:
        resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=keys)
        return (await sent(broker, DescribeConfigsRequest(resources=[resource]), is_wide=False)).results[0].configs

    played(work)


def test_partition_that_is_named_twice_is_refused_however_often() -> None:
    """Counting each among all others took ten seconds for 20,000."""

    async def work(broker: Broker) -> None:
        asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 20_000
        asked.append(ListOffsetsPartition(partition_index=1, timestamp=-1))
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])
        told = (await sent(broker, request, is_wide=True)).topics[0].partitions
        assert {one.error_code for one in told[:-1]} == {Error.INVALID_REQUEST}
        assert told[-1].error_code == Error.NONE

    played(work)


# Sessions of very many partitions.


def fetch(indexes: list[int], **fields: Any) -> FetchRequest:
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100) for index in indexes]
    said = {"max_wait_ms": 0, "min_bytes": 0, "session_epoch": 0} | fields
    return FetchRequest(topics=[FetchTopic(topic=TOPIC, partitions=partitions)] if indexes else [], **said)


def test_session_of_many_partitions_is_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of it names none of them, and costs as much as if it did."""

    async def work(broker: Broker) -> None:
        monkeypatch.setattr("ottla.broker.handlers.fetch._AT_ONCE_MAX", 16)
        monkeypatch.setattr(backlog, "ELEMENTS_PER_TURN", 16)
        opened = await sent(broker, fetch(list(range(PARTITIONS))), is_wide=False, version=12)
        assert len(opened.responses[0].partitions) == PARTITIONS
        gave_way = 0
        turn = broker.node.backlog.turn

        def counted(budget: backlog.Budget) -> Any:
            nonlocal gave_way
            gave_way += 1
            return turn(budget)

        broker.node.backlog.turn = counted  # type: ignore[method-assign]
        going_on = fetch([], session_id=opened.session_id, session_epoch=1)
        told = await sent(broker, going_on, is_wide=False, version=12)
        assert (told.error_code, told.responses) == (Error.NONE, [])
        assert gave_way >= 2
        waits = fetch([], session_id=opened.session_id, session_epoch=2, max_wait_ms=200, min_bytes=1)
        told = await sent(broker, waits, is_wide=False, version=12)
        assert (told.error_code, told.responses) == (Error.NONE, [])

    played(work)


# Batches that take long.


@pytest.mark.parametrize("is_wide", [False, True])
def test_batch_that_takes_long_is_checked_in_a_thread_and_those_after_it_wait(is_wide: bool) -> None:
    async def work(broker: Broker) -> None:
        heavy = bytes(build_batch([Record(0, T, None, bytes(5 << 20))], codec=Codec.LZ4))
        bomb = bytes(build_batch([Record(0, T, None, bytes(70 << 20))], codec=Codec.LZ4))
        batches = (batch(b"1"), heavy, bomb, batch(b"2"))
        data = [PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)]
        topic_id = broker.node.metadata.image.topics[TOPIC].topic_id
        request = ProduceRequest(
            acks=-1, timeout_ms=1, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)]
        )
        threads = 0
        in_thread = broker.disk.in_thread

        async def counted(doing: Any) -> Any:
            nonlocal threads
            threads += doing.__name__ == "check"  # Not the syncs of new logs.
            return await in_thread(doing)

        broker.disk.in_thread = counted  # type: ignore[method-assign]
        told = (await sent(broker, request, is_wide=is_wide)).responses[0].partition_responses
        assert [one.error_code for one in told] == [Error.NONE, Error.NONE, Error.INVALID_RECORD, Error.NONE]
        assert [one.base_offset for one in told] == [0, 0, -1, 0]
        assert threads == 2

    played(work)
