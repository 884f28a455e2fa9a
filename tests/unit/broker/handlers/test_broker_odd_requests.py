"""Odd requests about records and partitions: refused with Kafka's error, and nothing is changed by them.

The comparison with Kafka itself is in tests/compat/clients/test_clients_odd_requests.py.
"""

from typing import Any

import pytest
from broker_transaction_samples import TOPIC, Broker, eventually, passed, plain, produce_request, produced, simulated

from ottla.kernel import Codec
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.api.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.api.produce import PartitionProduceData, TopicProduceData
from ottla.wire.api.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from ottla.wire.errors import Error

OFFSETS = "__consumer_offsets"


def numbered(producer_id: int, sequence: int, *, epoch: int = 0, **fields: Any) -> bytes:
    return plain("v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


# Produce.


@pytest.mark.parametrize(
    ("version", "error"),
    [(3, Error.UNSUPPORTED_COMPRESSION_TYPE), (6, Error.UNSUPPORTED_COMPRESSION_TYPE), (7, Error.NONE)],
)
def test_zstd_is_refused_from_clients_that_do_not_know_it(version: int, error: Error) -> None:
    """A consumer of the same age could not read it."""

    async def scenario(broker: Broker) -> None:
        told = await produced(broker, [plain("v", codec=Codec.ZSTD), plain("v", codec=Codec.LZ4)], version=version)
        assert told == [error, Error.NONE]

    simulated(scenario)


def test_what_is_wrong_with_a_produce_request_is_told_in_kafkas_order() -> None:
    """The partition, the batch, the acks."""

    async def scenario(broker: Broker) -> None:
        bad = [plain("v")[:-1], None, plain("v") * 2, plain("v")]
        assert await produced(broker, [*bad, plain("v")], acks=5) == [
            Error.INVALID_RECORD,
            Error.INVALID_RECORD,
            # There are two partitions.
            *[Error.UNKNOWN_TOPIC_OR_PARTITION] * 3,
        ]
        assert await produced(broker, [plain("v")], acks=5) == [Error.INVALID_REQUIRED_ACKS]
        assert await produced(broker, [plain("v", codec=Codec.ZSTD)], acks=5, version=5) == [
            Error.UNSUPPORTED_COMPRESSION_TYPE
        ]

    simulated(scenario)


def test_a_refusal_tells_where_the_log_begins_if_the_log_was_asked() -> None:
    async def scenario(broker: Broker) -> None:
        assert await produced(broker, [numbered(9, 0)]) == [Error.NONE]
        for batch, log_start in ((numbered(9, 5), 0), (b"odd", -1), (plain("v")[:-1] + b"\xff", -1)):
            told = await broker.send(produce_request([PartitionProduceData(index=0, records=batch)]), 9)
            (one,) = told.responses[0].partition_responses
            assert one.error_code != Error.NONE
            assert one.log_start_offset == log_start

    simulated(scenario)


def test_a_partition_that_is_named_twice_gets_nothing() -> None:
    """One answer could not tell what became of two batches."""

    async def scenario(broker: Broker) -> None:
        data = [PartitionProduceData(index=index, records=plain("v")) for index in (0, 1, 0)]
        topics = [TopicProduceData(name=TOPIC, partition_data=[one]) for one in data]
        told = await broker.send(
            produce_request([], topic_data=[*topics, TopicProduceData(name="u", partition_data=[])]), 9
        )
        errors = [
            (topic.name, one.index, one.error_code) for topic in told.responses for one in topic.partition_responses
        ]
        # In the order of the request; a topic without a partition is not told of.
        assert errors == [(TOPIC, 0, Error.INVALID_REQUEST), (TOPIC, 1, Error.NONE)]
        assert len(told.responses) == 2
        assert (await broker.read(0), await broker.read(1)) == ([], ["v"])

    simulated(scenario)


def test_transactional_batches_of_several_producers_fail_the_whole_request() -> None:
    async def scenario(broker: Broker) -> None:
        batches = [numbered(9, 0, transactional=True), numbered(8, 0, transactional=True)]
        told = await produced(broker, batches, transactional_id="id")
        assert told == [Error.INVALID_PRODUCER_ID_MAPPING] * 2
        assert await broker.read(committed=False) == []
        # Those for partitions that there are not do not count.
        data = [PartitionProduceData(index=index, records=batch) for index, batch in zip((8, 9), batches, strict=True)]
        told = (await broker.send(produce_request(data, transactional_id="id"), 9)).responses[0].partition_responses
        assert [one.error_code for one in told] == [Error.UNKNOWN_TOPIC_OR_PARTITION] * 2

    simulated(scenario)


@pytest.mark.parametrize("producer_id", [-2, -5])
def test_an_id_below_that_of_no_producer_is_none_either(producer_id: int) -> None:
    async def scenario(broker: Broker) -> None:
        for sequence in (0, 0, 7, -1):
            assert await produced(broker, [numbered(producer_id, sequence)]) == [Error.NONE]
        assert broker.node.partition(TOPIC, 0).log.state.producers.by_id == {}
        assert len(await broker.read()) == 4

    simulated(scenario)


def test_a_producer_is_not_forgotten_before_the_interval_has_passed() -> None:
    """Its records have old timestamps, so the first look forgets it; what it sends again would be appended again."""

    async def scenario(broker: Broker) -> None:
        for sequence in range(7):
            assert await produced(broker, [numbered(9, sequence)]) == [Error.NONE]
        await passed(500_000)
        assert await produced(broker, [numbered(9, 0)]) == [Error.OUT_OF_ORDER_SEQUENCE_NUMBER]
        producers = broker.node.partition(TOPIC, 0).log.state.producers
        await eventually(lambda: 9 not in producers.by_id, 200_000)
        assert await produced(broker, [numbered(9, 0)]) == [Error.NONE]

    simulated(scenario, producer_id_expiration_check_interval_ms="600000")


# Fetch.


def fetch(version: int = 12, **fields: Any) -> FetchRequest:
    own = ("fetch_offset", "current_leader_epoch", "last_fetched_epoch", "partition_max_bytes")
    asked: dict[str, Any] = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    asked |= {name: fields.pop(name) for name in own if name in fields}
    whole: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0} | fields
    topic = {"topic": TOPIC} if version < 13 else {"topic_id": whole.pop("topic_id")}
    return FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(**asked)], **topic)], **whole)


async def fetched(broker: Broker, version: int = 12, **fields: Any) -> Any:
    (told,) = (await broker.send(fetch(version, **fields), version)).responses[0].partitions
    return told


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"current_leader_epoch": -5}, Error.NONE),
        ({"current_leader_epoch": 1}, Error.UNKNOWN_LEADER_EPOCH),
        ({"replica_id": 2}, Error.NOT_LEADER_OR_FOLLOWER),
        ({"replica_id": 1}, Error.NOT_LEADER_OR_FOLLOWER),
        ({"replica_id": 2, "current_leader_epoch": 0}, Error.UNKNOWN_LEADER_EPOCH),
        ({"replica_id": 2, "current_leader_epoch": 1}, Error.UNKNOWN_LEADER_EPOCH),
        ({"replica_id": -2}, Error.NONE),
        ({"last_fetched_epoch": 99}, Error.OFFSET_OUT_OF_RANGE),
        ({"last_fetched_epoch": 0}, Error.NONE),
        ({"last_fetched_epoch": 0, "fetch_offset": -1}, Error.OFFSET_OUT_OF_RANGE),
        ({"last_fetched_epoch": -5}, Error.NONE),
        ({"isolation_level": 2}, Error.INVALID_REQUEST),
        ({"partition_max_bytes": -1}, Error.INVALID_FETCH_SIZE),
        ({"max_bytes": -1}, Error.INVALID_FETCH_SIZE),
        ({"max_bytes": -1, "fetch_offset": 1}, Error.NONE),
    ],
)
def test_an_odd_fetch_is_refused_or_served_as_in_kafka(asked: dict[str, Any], error: Error) -> None:
    async def scenario(broker: Broker) -> None:
        assert await produced(broker, [plain("v")]) == [Error.NONE]
        assert (await fetched(broker, **asked)).error_code == error

    simulated(scenario)


def test_a_reader_whose_log_parts_from_this_one_is_told_where() -> None:
    """Instead of records that would not follow its own (KIP-595); it does not wait for it."""

    async def scenario(broker: Broker) -> None:
        assert await produced(broker, [plain("v")]) == [Error.NONE]
        told = await fetched(broker, last_fetched_epoch=0, fetch_offset=5, min_bytes=1, max_wait_ms=500)
        assert told.error_code == Error.NONE
        assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (0, 1)
        assert len(told.records) == 0
        assert (await fetched(broker, last_fetched_epoch=0, fetch_offset=1)).diverging_epoch is None

    simulated(scenario)


def test_a_client_that_is_wrong_about_the_leader_is_told_who_it_is() -> None:
    """KIP-951, from version 16 on. A broker that claims a replica knows the addresses of brokers."""

    async def scenario(broker: Broker) -> None:
        topic_id = broker.node.metadata.image.topics[TOPIC].topic_id
        broker.node.partition(TOPIC, 0).leader_epoch = 3
        for version, replica, told_of in ((15, None, []), (16, None, [1]), (16, 2, [])):
            state = None if replica is None else ReplicaState(replica_id=replica)
            request = fetch(version, topic_id=topic_id, current_leader_epoch=2, replica_state=state)
            response = await broker.send(request, version)
            (one,) = response.responses[0].partitions
            assert one.error_code == Error.FENCED_LEADER_EPOCH
            assert (one.current_leader is not None) == (version >= 16)
            assert [node.node_id for node in response.node_endpoints] == told_of

    simulated(scenario)


def test_more_bytes_than_may_be_sent_are_not_waited_for() -> None:
    async def scenario(broker: Broker) -> None:
        assert await produced(broker, [plain("v")]) == [Error.NONE]
        before = broker.clock.monotonic_ms()
        told = await fetched(broker, min_bytes=1 << 20, max_bytes=50, max_wait_ms=60_000)
        assert len(told.records) > 0
        assert broker.clock.monotonic_ms() == before

    simulated(scenario)


# The others.


def test_offsets_are_told_to_replicas_up_to_the_end_of_the_log() -> None:
    """They have no isolation level. Each partition is told of once."""

    async def offset(broker: Broker, *indexes: int, **fields: Any) -> list[tuple[int, int]]:
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes]
        topics = [ListOffsetsTopic(name=TOPIC, partitions=[one]) for one in asked]
        request = ListOffsetsRequest(**{"replica_id": -1, "isolation_level": 1, **fields}, topics=topics)
        told = (await broker.send(request, 7)).topics
        return [(one.error_code, one.offset) for topic in told for one in topic.partitions]

    async def scenario(broker: Broker) -> None:
        partition = broker.node.partition(TOPIC, 0)
        batch = numbered(9, 0, transactional=True)
        partition.append(memoryview(bytearray(batch)), acks=-1)
        assert await offset(broker, 0) == [(Error.NONE, 0)]
        assert await offset(broker, 0, replica_id=2) == [(Error.NONE, 1)]
        assert await offset(broker, 0, isolation_level=9) == [(Error.INVALID_REQUEST, -1)]
        assert await offset(broker, 0, 1, 0) == [(Error.INVALID_REQUEST, -1), (Error.NONE, 0)]

    simulated(scenario)


def test_records_of_internal_topics_are_not_deleted() -> None:
    async def scenario(broker: Broker) -> None:
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (99, 0)],
            )
            for name in (OFFSETS, TOPIC)
        ]
        told = await broker.send(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
        errors = [(topic.name, [one.error_code for one in topic.partitions]) for topic in told.topics]
        assert errors == [(OFFSETS, [Error.INVALID_TOPIC_EXCEPTION]), (TOPIC, [Error.NONE])]

    simulated(scenario)


def test_producers_of_a_topic_that_cannot_be_are_an_invalid_question() -> None:
    async def scenario(broker: Broker) -> None:
        topics = [TopicRequest(name=name, partition_indexes=[0]) for name in ("a/b", "absent", OFFSETS)]
        told = await broker.send(DescribeProducersRequest(topics=topics))
        assert [topic.partitions[0].error_code for topic in told.topics] == [
            Error.INVALID_TOPIC_EXCEPTION,
            Error.UNKNOWN_TOPIC_OR_PARTITION,
            Error.NONE,
        ]

    simulated(scenario)


@pytest.mark.parametrize(
    ("producer", "version", "error"),
    [
        ((9, -1), 0, Error.INVALID_PRODUCER_EPOCH),
        ((9, -2), 0, Error.INVALID_PRODUCER_EPOCH),
        ((-1, 0), 0, Error.INVALID_PRODUCER_ID_MAPPING),
        ((9, 0), -1, Error.INVALID_REQUEST),
    ],
)
def test_a_marker_of_what_no_transaction_can_have_is_not_written(
    producer: tuple[int, int], version: int, error: Error
) -> None:
    async def scenario(broker: Broker) -> None:
        marker = WritableTxnMarker(
            producer_id=producer[0],
            producer_epoch=producer[1],
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[0]) for name in (TOPIC, OFFSETS, "absent")],
            coordinator_epoch=0,
            transaction_version=version,
        )
        # One without partitions is not told of.
        nowhere = WritableTxnMarker(
            producer_id=8, producer_epoch=0, transaction_result=True, topics=[], coordinator_epoch=0
        )
        told = await broker.send(WriteTxnMarkersRequest(markers=[marker, nowhere]))
        (one,) = told.markers
        errors = {topic.name: topic.partitions[0].error_code for topic in one.topics}
        assert errors == {TOPIC: error, OFFSETS: error, "absent": Error.UNKNOWN_TOPIC_OR_PARTITION}
        assert broker.node.partition(TOPIC, 0).log.state.end_offset == 0

    simulated(scenario)


def test_older_clients_do_not_hear_of_features_whose_levels_begin_at_0() -> None:
    """Java's fail at them (KAFKA-17011)."""

    async def scenario(broker: Broker) -> None:
        for version, named in ((3, {"metadata.version"}), (4, None)):
            request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
            told = await broker.send(request, version)
            found = {one.name for one in told.supported_features}
            assert found == named if named else len(found) > 1

    simulated(scenario)
