"""Where records are: the ends of a log, by time, and what is left after records were deleted."""

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from drivers import DRIVERS, Sent
from drivers.confluent import Confluent
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from nodes.topics import Server, Topics
from nodes.wire import Wire
from peers.client import Client, Found

from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.errors import Error

T = 1_700_000_000_000
NOTHING = (-1, -1)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def timed(server: Server, topic: str, *deltas: int) -> None:
    """One batch per timestamp."""
    for delta in deltas:
        Confluent().produce(server.bootstrap, topic, [Sent(None, b"v", T + delta)])


def find(server: Server, topic: str, spec: OffsetSpec) -> Found:
    return Client(server.bootstrap).list_offsets({TopicPartition(topic, 0): spec})[topic, 0]


def test_look_up_by_time(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    timed(server, topic, 0, 30, 10, 20, 40)
    expected = {-1: (0, T), 0: (0, T), 5: (1, T + 30), 30: (1, T + 30), 31: (4, T + 40), 40: (4, T + 40), 41: NOTHING}
    for delta, answer in expected.items():
        assert find(server, topic, OffsetSpec.for_timestamp(T + delta)) == answer, delta
    assert find(server, topic, OffsetSpec.max_timestamp()) == (4, T + 40)


def test_look_up_by_time_inside_a_compressed_batch(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    Confluent().produce(server.bootstrap, topic, [Sent(None, b"v", T + 10 * n) for n in range(10)], codec="zstd")
    assert find(server, topic, OffsetSpec.for_timestamp(T + 35)) == (4, T + 40)
    assert find(server, topic, OffsetSpec.max_timestamp()) == (9, T + 90)


def test_kafka_python_looks_up_by_time(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    timed(server, topic, 0, 10)
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, group_id=None)
    try:
        partition = PythonPartition(topic, 0)
        found = consumer.offsets_for_times({partition: T + 5})[partition]
        assert (found.offset, found.timestamp) == (1, T + 10)
        assert consumer.offsets_for_times({partition: T + 11}) == {partition: None}
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 2}
    finally:
        consumer.close()


def test_special_offsets(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    with Wire(server.bootstrap) as wire:
        assert {special: special_offset(wire, topic, special) for special in (LATEST, EARLIEST, MAX_TIMESTAMP)} == {
            LATEST: (0, 0, -1),
            EARLIEST: (0, 0, -1),
            MAX_TIMESTAMP: (0, -1, -1),
        }
        timed(server, topic, 0, 20, 10)
        Client(server.bootstrap).delete_records(topic, 0, 1)
        assert special_offset(wire, topic, LATEST) == (0, 3, -1)
        assert special_offset(wire, topic, EARLIEST) == (0, 1, -1)
        assert special_offset(wire, topic, EARLIEST_LOCAL) == (0, 1, -1)
        assert special_offset(wire, topic, MAX_TIMESTAMP) == (0, 1, T + 20)
        assert special_offset(wire, topic, LATEST_TIERED) == (0, -1, -1)
        assert special_offset(wire, topic, -99)[0] == Error.UNSUPPORTED_VERSION


def special_offset(wire: Wire, topic: str, timestamp: int) -> tuple[int, int, int]:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    answer = wire.call(request, 9).topics[0].partitions[0]
    return answer.error_code, answer.offset, answer.timestamp


def test_deleted_records_are_gone(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    client = Client(server.bootstrap)
    timed(server, topic, *range(5))
    client.delete_records(topic, 0, 2)
    assert find(server, topic, OffsetSpec.earliest()).offset == 2
    assert [one.offset for one in client.read_all([(topic, 0)])[topic, 0]] == [2, 3, 4]
    assert find(server, topic, OffsetSpec.for_timestamp(T)) == (2, T + 2)
    client.delete_records(topic, 0, 1)  # Below the start: nothing more to do.
    assert find(server, topic, OffsetSpec.earliest()).offset == 2
    with pytest.raises(KafkaException) as refused:
        client.delete_records(topic, 0, 6)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
    client.delete_records(topic, 0, -1)
    assert find(server, topic, OffsetSpec.earliest()).offset == 5
    timed(server, topic, 9)
    for driver in DRIVERS:
        assert [one.offset for one in driver.consume(server.bootstrap, topic, 1, start=5)] == [5]


def test_records_of_a_compacted_topic_are_not_deleted(server: Server, topics: Topics) -> None:
    topic = topics.create(server, cleanup_policy="compact")
    with pytest.raises(KafkaException) as refused:
        Client(server.bootstrap).delete_records(topic, 0, 0)
    assert refused.value.args[0].code() == KafkaError.POLICY_VIOLATION


def test_fetch_outside_the_log_is_refused(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    timed(server, topic, *range(3))
    Client(server.bootstrap).delete_records(topic, 0, 1)
    with Wire(server.bootstrap) as wire:
        assert [fetch_error(wire, topic, offset) for offset in (0, 1, 3, 4)] == [
            Error.OFFSET_OUT_OF_RANGE,
            Error.NONE,
            Error.NONE,
            Error.OFFSET_OUT_OF_RANGE,
        ]
        assert fetch_error(wire, topic, 1, epoch=7) == Error.UNKNOWN_LEADER_EPOCH


def test_waiting_reader_is_woken_by_a_record(server: Server, topics: Topics) -> None:
    """Long before its time is up, which is longer than this test waits for anything."""
    topic = topics.create(server)
    timed(server, topic, 0)
    asked = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=600_000, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic=topic, partitions=[asked])]
    )
    with Wire(server.bootstrap) as reader:
        reader.send(request, 12)
        timed(server, topic, 1)
        assert len(reader.receive(request, 12).responses[0].partitions[0].records) > 0


def fetch_error(wire: Wire, topic: str, offset: int, epoch: int = -1) -> int:
    asked = FetchPartition(partition=0, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=10, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic=topic, partitions=[asked])]
    )
    error: int = wire.call(request, 12).responses[0].partitions[0].error_code
    return error
