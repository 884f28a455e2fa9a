"""What the topic source promises, of Ottla and of Apache Kafka; Spark's part is played here (see topic_streams)."""

import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from nodes.ottla_node import running_node
from nodes.topics import Server, Topics
from peers.client import QUIET, Client
from topic_streams import Stream, read_by, source, values

from ottla.client.core.names import TopicPartition
from ottla.observe.trace import names, recording
from ottla.pipelines.run.consumed import publish_offsets
from ottla.pipelines.source.losses import DataLost
from ottla.pipelines.source.read_options import read_options_of
from ottla.pipelines.spark.topic_source import CAUGHT_UP, TopicReader
from ottla.pipelines.spec.model import DataLoss, Isolation, StartPosition
from ottla.rpc.errors import Declined

TIME_MS = 1_700_000_000_000
WARN = DataLoss.WARN
TRANSACTIONS = count()


def send(server: Server, topic: str, sent: Iterable[bytes], partition: int = 0, **settings: object) -> None:
    """In one batch, if it fits."""
    producer = Client(server.bootstrap).producer(**settings)
    for value in sent:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def transactional(server: Server) -> Producer:
    name = f"topic-source-{os.getpid()}-{next(TRANSACTIONS)}"
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": name} | QUIET)
    producer.init_transactions(30)
    return producer


def admin(server: Server) -> AdminClient:
    """Keep it until it has answered."""
    return AdminClient({"bootstrap.servers": server.bootstrap} | QUIET)


def delete(server: Server, topic: str) -> None:
    asking = admin(server)
    for future in asking.delete_topics([topic]).values():
        future.result(30)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_arrive_whole_whatever_packs_them(server: Server, topics: Topics, codec: str) -> None:
    topic = topics.create(server)
    headers = [("trace", b"\xff\0"), ("trace", b"again"), ("none", None)]
    producer = Client(server.bootstrap).producer(compression_type=codec)
    for number in range(200):
        producer.produce(topic, b"value" * number, b"key-%d" % number, timestamp=TIME_MS + number, headers=headers)
    producer.produce(topic, None, b"tombstone", timestamp=TIME_MS)
    producer.produce(topic, b"", None, timestamp=TIME_MS)
    assert producer.flush(30) == 0
    with Stream(server.bootstrap, source(topic)) as stream:
        rows = stream.epoch()
    assert [(row.topic, row.partition, row.offset) for row in rows] == [(topic, 0, offset) for offset in range(202)]
    assert [row.key for row in rows] == [*(b"key-%d" % number for number in range(200)), b"tombstone", None]
    assert values(rows) == [*(b"value" * number for number in range(200)), None, b""]
    since = datetime.fromtimestamp(TIME_MS / 1000, UTC)
    times = [*(since + timedelta(milliseconds=number) for number in range(200)), since, since]
    assert [row.timestamp for row in rows] == times
    assert rows[7].headers == [
        {"key": "trace", "value": b"\xff\0"},
        {"key": "trace", "value": b"again"},
        {"key": "none", "value": None},
    ]
    assert rows[201].headers == []


def test_only_what_is_committed_is_read(server: Server, topics: Topics) -> None:
    """What comes after an open transaction waits for its end, and what was aborted is never seen."""
    topic = topics.create(server)
    aborting, open_one = transactional(server), transactional(server)
    for producer, value in [(aborting, b"aborted"), (open_one, b"open")]:
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(30) == 0
    aborting.abort_transaction(30)
    send(server, topic, [b"after"])
    with (
        Stream(server.bootstrap, source(topic)) as committed,
        Stream(server.bootstrap, source(topic, isolation=Isolation.READ_UNCOMMITTED)) as uncommitted,
    ):
        assert values(committed.epoch()) == []
        assert values(uncommitted.epoch()) == [b"aborted", b"open", b"after"]
        open_one.commit_transaction(30)  # Decided; the marker follows.
        assert values(committed.next_rows()) == [b"open", b"after"]
        assert values(uncommitted.epoch()) == []


def test_aborted_records_are_left_out_wherever_the_epoch_begins(server: Server, topics: Topics) -> None:
    """The list of aborted transactions comes with each answer, and reaches back before it."""
    topic = topics.create(server)
    producer = transactional(server)
    for number in range(6):
        producer.begin_transaction()
        for value in numbered(number * 10, number * 10 + 10):
            producer.produce(topic, value)
        (producer.commit_transaction if number % 2 else producer.abort_transaction)(30)
    with Stream(server.bootstrap, source(topic, records_per_batch_max=4, partitions_min=2)) as stream:
        found = values(stream.next_rows(30))  # Some epochs have none to read.
    assert found == numbered(10, 20) + numbered(30, 40) + numbered(50, 60)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (StartPosition("earliest"), {*range(20)}),
        (StartPosition("latest"), set()),
        (StartPosition("", TIME_MS + 14), {*range(14, 20)}),
        (StartPosition("", TIME_MS + 1_000), set()),
        (StartPosition("", None, (("TOPIC", 1, 9),)), {*range(0, 20, 2), 19}),
    ],
    ids=["earliest", "latest", "time", "later", "offsets"],
)
def test_pipeline_begins_where_it_is_told(
    server: Server, topics: Topics, start: StartPosition, expected: set[int]
) -> None:
    topic = topics.create(server, partitions=2)
    producer = Client(server.bootstrap).producer()
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=number % 2, timestamp=TIME_MS + number)
    assert producer.flush(30) == 0
    given = replace(start, offsets=tuple((topic, partition, offset) for _, partition, offset in start.offsets))
    with Stream(server.bootstrap, source(topic, start=given)) as stream:
        assert {int(value or b"") for value in values(stream.epoch())} == expected
        send(server, topic, [b"later"])
        assert values(stream.epoch()) == [b"later"]


def test_what_lies_between_two_times_is_read_as_a_batch(server: Server, topics: Topics) -> None:
    topic = topics.create(server, partitions=2)
    producer = Client(server.bootstrap).producer()
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=number % 2, timestamp=TIME_MS + number)
    assert producer.flush(30) == 0

    def between(from_ms: int, to_ms: int) -> list[bytes]:
        start, until = StartPosition("", TIME_MS + from_ms), StartPosition("", TIME_MS + to_ms)
        reader = TopicReader(read_options_of(source(topic), server.bootstrap, start=start, until=until))
        return sorted((value or b"" for value in values(read_by(reader, reader.partitions()))), key=int)

    assert between(20, 70) == numbered(20, 70)
    assert between(90, 5_000) == numbered(90, 100)
    assert between(-50, 3) == numbered(0, 3)
    assert between(70, 20) == []


def test_limit_holds_and_everything_is_read_in_order(server: Server, topics: Topics) -> None:
    topic = topics.create(server, partitions=3)
    for partition, records in enumerate([5, 40, 90]):
        send(server, topic, numbered(0, records), partition)
    with Stream(server.bootstrap, source(topic, records_per_batch_max=27)) as stream:
        epochs = stream.rest()
    assert [len(rows) for rows in epochs] == [27, 27, 27, 27, 27]
    assert {row.partition for row in epochs[0]} == {0, 1, 2}
    for partition, records in enumerate([5, 40, 90]):
        read = [row.value for rows in epochs for row in rows if row.partition == partition]
        assert read == numbered(0, records)


def test_pipeline_with_a_rate_begins_with_one_second_of_it(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    send(server, topic, numbered(0, 300))
    with Stream(server.bootstrap, source(topic, records_per_second_max=100)) as stream:
        assert values(stream.epoch()) == numbered(0, 100)
        rest = stream.epoch()
        assert values(rest) == numbered(100, 100 + len(rest))
        assert 1 <= len(rest) <= 100


def test_one_partition_is_shared_by_several_tasks(server: Server, topics: Topics) -> None:
    """Tasks begin and end in the middle of batches."""
    topic = topics.create(server)
    send(server, topic, numbered(0, 100), compression_type="zstd")
    with Stream(server.bootstrap, source(topic, partitions_min=7)) as stream:
        tasks = stream.plan()
        assert len(tasks) == 7
        assert values(stream.read(tasks)) == numbered(0, 100)


def test_partitions_that_come_later_are_read_from_their_beginning(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    with Stream(server.bootstrap, source(topic, start=StartPosition("latest"))) as stream:
        asking = admin(server)
        for future in asking.create_partitions([NewPartitions(topic, 3)]).values():
            future.result(30)
        send(server, topic, [b"new"], partition=2)
        assert values(stream.next_rows()) == [b"new"]


def test_topics_that_fit_the_pattern_are_found_whenever_they_are_made(server: Server, topics: Topics) -> None:
    stem = topics.name()
    Client(server.bootstrap).create_topics({f"{stem}.a": {}, f"x{stem}.c": {}}, {})
    for topic in (f"{stem}.a", f"x{stem}.c"):
        send(server, topic, [topic.encode()])
    with Stream(server.bootstrap, replace(source(), pattern=rf"{stem}\..*")) as stream:
        assert values(stream.epoch()) == [f"{stem}.a".encode()]
        Client(server.bootstrap).create_topics({f"{stem}.b": {}}, {})
        send(server, f"{stem}.b", [b"b"])
        assert values(stream.next_rows()) == [b"b"]
        assert set(stream.position) == {f"{stem}.a", f"{stem}.b"}


def test_several_topics_are_one_source(server: Server, topics: Topics) -> None:
    both = [topics.create(server), topics.create(server, partitions=2)]
    for topic in both:
        send(server, topic, [topic.encode()])
    with Stream(server.bootstrap, source(*both)) as stream:
        rows = stream.epoch()
    assert {(row.topic, row.value) for row in rows} == {(topic, topic.encode()) for topic in both}


def test_position_of_the_checkpoint_is_where_it_goes_on(server: Server, topics: Topics) -> None:
    """Also under a limit, which counts from there."""
    topic = topics.create(server)
    send(server, topic, numbered(0, 30))
    read = source(topic, records_per_batch_max=10)
    with Stream(server.bootstrap, read) as stream:
        assert values(stream.epoch()) == numbered(0, 10)
    with Stream(server.bootstrap, read, checkpoint=stream.position) as stream:
        assert values(stream.epoch()) == numbered(10, 20)


def test_stream_that_is_to_end_reads_what_there_was_when_it_began(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    send(server, topic, numbered(0, 25))
    with Stream(server.bootstrap, source(topic, records_per_batch_max=10), until=CAUGHT_UP) as stream:
        first = stream.epoch()
        send(server, topic, [b"too late"])
        assert values([*first, *(row for rows in stream.rest() for row in rows)]) == numbered(0, 25)


def test_records_removed_before_they_were_read_stop_the_pipeline_or_are_told(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    send(server, topic, numbered(0, 20))
    with (
        Stream(server.bootstrap, source(topic)) as failing,
        Stream(server.bootstrap, source(topic, on_data_loss=WARN)) as going_on,
    ):
        Client(server.bootstrap).delete_records(topic, 0, 12)
        with pytest.raises(DataLost, match=f"topic {topic}, partition 0: offsets 0 to 11 were removed"):
            failing.epoch()
        with recording() as events:
            assert values(going_on.epoch()) == numbered(12, 20)
        assert names(events) == ["pipeline.data_lost"]


def test_records_removed_before_the_task_came_to_them_are_a_loss_too(server: Server, topics: Topics) -> None:
    """Planned and fetched are two moments."""
    topic = topics.create(server)
    send(server, topic, numbered(0, 20))
    with (
        Stream(server.bootstrap, source(topic)) as failing,
        Stream(server.bootstrap, source(topic, on_data_loss=WARN)) as going_on,
    ):
        planned, tolerant = failing.plan(), going_on.plan()
        Client(server.bootstrap).delete_records(topic, 0, 12)
        with pytest.raises(DataLost, match="offsets 0 to 11 were removed"):
            failing.read(planned)
        with recording() as events:
            assert values(going_on.read(tolerant)) == numbered(12, 20)
        assert names(events) == ["pipeline.data_lost"]


def test_topic_made_anew_is_a_loss_for_plan_and_task(server: Server, topics: Topics) -> None:
    """Its offsets mean other records; they are read from the first."""
    topic = topics.create(server)
    send(server, topic, numbered(0, 10))
    with (
        Stream(server.bootstrap, source(topic, records_per_batch_max=5)) as failing,
        Stream(server.bootstrap, source(topic, on_data_loss=WARN)) as going_on,
    ):
        assert values(failing.epoch()) == numbered(0, 5)
        assert values(going_on.epoch()) == numbered(0, 10)
        planned = failing.plan()
        delete(server, topic)
        Client(server.bootstrap).create_topics({topic: {}}, {})
        send(server, topic, numbered(100, 120))
        with pytest.raises(DataLost, match="deleted and created again"):
            failing.read(planned)
        with pytest.raises(DataLost, match="deleted and created again"):
            failing.plan()
        with (
            Stream(server.bootstrap, source(topic), checkpoint=failing.position) as restarted,
            pytest.raises(DataLost, match="deleted and created again"),
        ):
            restarted.plan()
        with recording() as events:
            assert values(going_on.epoch() + going_on.epoch()) == numbered(100, 120)
        assert names(events) == ["pipeline.data_lost"]


def test_topic_deleted_for_good_is_a_loss(server: Server, topics: Topics) -> None:
    topic = topics.create(server)
    with (
        Stream(server.bootstrap, source(topic)) as failing,
        Stream(server.bootstrap, source(topic, on_data_loss=WARN)) as going_on,
    ):
        delete(server, topic)
        with pytest.raises(DataLost, match="no longer exists"):
            failing.plan()
        with recording() as events:
            assert (going_on.epoch(), going_on.epoch()) == ([], [])
        assert names(events) == ["pipeline.data_lost"]


def test_topic_that_does_not_exist_is_said_by_name(server: Server, topics: Topics) -> None:
    missing = topics.name()
    with pytest.raises(Declined, match=f"topic {missing}: .*create the topic first"):
        Stream(server.bootstrap, source(topics.create(server), missing))


def test_who_wants_all_and_finds_no_beginning_is_warned(server: Server, topics: Topics) -> None:
    empty, cut = topics.create(server), topics.create(server)
    send(server, cut, numbered(0, 10))
    Client(server.bootstrap).delete_records(cut, 0, 4)
    with recording() as events, Stream(server.bootstrap, source(empty, cut)) as stream:
        assert values(stream.epoch()) == numbered(4, 10)
    assert {(event.name, event.fields["topic"], event.fields["records_removed"]) for event in events} == {
        ("pipeline.source_empty", empty, 0),
        ("pipeline.source_begins_late", cut, 4),
    }


def test_records_larger_than_a_fetch_come_whole(server: Server, topics: Topics) -> None:
    topic = topics.create(server, max_message_bytes="10000000")
    large = [os.urandom(9_990_000), b"small", os.urandom(5_000_000)]
    for value in large:
        send(server, topic, [value], message_max_bytes=10_000_000)
    with Stream(server.bootstrap, source(topic)) as stream:
        assert values(stream.epoch()) == large


def test_time_beyond_all_calendars_does_not_stop_the_pipeline(server: Server, topics: Topics) -> None:
    """Spark counts microseconds, a record's time milliseconds: what does not fit is as late as can be said."""
    topic = topics.create(server, message_timestamp_after_max_ms=str(2**63 - 1))
    producer = Client(server.bootstrap).producer()
    producer.produce(topic, b"far", timestamp=2**62)
    assert producer.flush(30) == 0
    with Stream(server.bootstrap, source(topic)) as stream:
        (task,) = stream.plan()
        (batch,) = stream.reader.read(task)
    assert batch.column("_timestamp").cast("int64").to_pylist() == [(2**63 - 1) // 1000 * 1000]


def test_consumed_offsets_are_seen_by_every_tool_that_shows_groups(server: Server, topics: Topics) -> None:
    topic = topics.create(server, partitions=2)
    group = f"pipeline.{topic}"
    for offset in (3, 5):
        publish_offsets(server.bootstrap, group, {TopicPartition(topic, 0): offset, TopicPartition(topic, 1): 7})
    asking = admin(server)
    asked = asking.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(30).topic_partitions
    assert {(one.partition, one.offset) for one in found} == {(0, 5), (1, 7)}


def test_broker_that_comes_back_is_read_on(tmp_path: Path, topics: Topics) -> None:
    """The connections are gone, and the answer to what was asked ahead with them; nobody needs to be told."""
    with running_node(tmp_path) as node:
        topic = topics.create(node)
        large = [b"%d" % number * 900_000 for number in range(10)]
        send(node, topic, large)
        with Stream(node.bootstrap, source(topic)) as stream:
            (task,) = stream.plan()
            batches = stream.reader.read(task)
            read = next(batches).column("_value").to_pylist()
            assert len(read) < len(large)
            node.restart()
            assert read + [value for batch in batches for value in batch.column("_value").to_pylist()] == large
            send(node, topic, numbered(5, 9))
            assert values(stream.epoch()) == numbered(5, 9)
