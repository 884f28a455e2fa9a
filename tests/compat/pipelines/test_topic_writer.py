"""Epochs into topics, exactly once, on a node of Ottla's and on Apache Kafka: one contract, two servers.

The engine is played by the tests: it hands the same rows over again until a task says that its epoch is done.
"""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import epoch_rows
import pyarrow as pa
import pytest
from committed_records import committed, committed_now, marker
from confluent_kafka import Consumer, Producer, TopicPartition
from epoch_rows import SINK, batch_of, parts_of, values_of
from nodes.ottla_node import OttlaNode, running_node
from nodes.topics import KEEPING, Server, Topics

from ottla.client import Admin, Client, settled
from ottla.kernel import murmur2
from ottla.pipelines.sink.epochs import EpochRefused, WriterFenced
from ottla.pipelines.sink.outgoing import BadRows
from ottla.pipelines.sink.topic_writer import TopicTarget, take_over, write_epoch
from ottla.pipelines.spec.identity import PipelineIdentity
from ottla.pipelines.spec.model import Compression, DeliveryGuarantee

PARTITIONS = 3
_numbers = count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaNode]:
    with running_node(tmp_path_factory.mktemp("ottla"), KEEPING) as started:
        yield started


@pytest.fixture(params=["ottla", "kafka"])
def server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue("node" if request.param == "ottla" else "kafka")  # type: ignore[no-any-return]


@pytest.fixture
def topics(request: pytest.FixtureRequest) -> Topics:
    return Topics(request.node.name, (str(next(_numbers)) for _ in iter(int, 1)))


class Sink:
    """A sink with topics of its own, and what readers see of it."""

    def __init__(self, server: Server, topics: Topics, **options: Any) -> None:
        self.server = server
        self.topic = topics.create(server, PARTITIONS)
        self.dead_topic = topics.create(server, PARTITIONS)
        self.pipeline = topics.name().replace(".", "-")
        self.target = TopicTarget(
            server.bootstrap,
            PipelineIdentity(self.pipeline),
            SINK,
            self.topic,
            **{"batch_bytes": 4_000, "linger_ms": 0} | options,
        )

    def write(self, epoch: int, batches: Iterator[pa.RecordBatch] | None = None) -> Any:
        rows = parts_of(epoch, self.topic, self.dead_topic) if batches is None else batches
        return write_epoch(self.target, 0, epoch, rows)

    def seen(self) -> Counter[bytes]:
        """The values of both topics, each in the topic it belongs to."""
        found: Counter[bytes] = Counter()
        for topic in (self.topic, self.dead_topic):
            for message in committed(self.server.bootstrap, topic, PARTITIONS):
                is_dead = int(message.value().split(b"/")[1]) % epoch_rows.DEAD_EVERY == 0
                assert is_dead == (topic == self.dead_topic)
                found[message.value()] += 1
        return found

    @property
    def group_id(self) -> str:
        return self.target.writer(0).group_id

    def marker(self) -> int | None:
        found = marker(self.server.bootstrap, self.group_id, self.topic)
        return None if found is None else found.offset


def lost_and_doubled(seen: Counter[bytes], epochs: int) -> tuple[int, int]:
    expected = Counter(value for epoch in range(epochs) for value in values_of(epoch))
    return (expected - seen).total(), (seen - expected).total()


def test_rows_are_written_once_and_a_replayed_epoch_is_skipped(server: Server, topics: Topics) -> None:
    sink = Sink(server, topics)
    for epoch in range(3):
        assert not sink.write(epoch).skipped
        again = sink.write(epoch)
        assert (again.skipped, again.records) == (True, len(values_of(epoch)))
        assert sink.marker() == epoch + 1
    assert lost_and_doubled(sink.seen(), 3) == (0, 0)


def test_rows_and_marker_become_visible_together(server: Server, topics: Topics) -> None:
    sink = Sink(server, topics)

    def observed() -> Iterator[pa.RecordBatch]:
        for number, part in enumerate(parts_of(0, sink.topic, sink.dead_topic)):
            if number > 2:  # Some of the rows are in the log by now.
                assert committed_now(server.bootstrap, sink.topic, PARTITIONS) == []
                assert sink.marker() is None
            yield part

    sink.write(0, observed())
    assert (lost_and_doubled(sink.seen(), 1), sink.marker()) == ((0, 0), 1)


def test_a_zombie_is_fenced(server: Server, topics: Topics) -> None:
    """An attempt that stood still wakes up when the next one has done its work."""
    sink = Sink(server, topics)

    def overtaken() -> Iterator[pa.RecordBatch]:
        parts = parts_of(0, sink.topic, sink.dead_topic)
        yield next(parts)
        assert not sink.write(0).skipped
        yield from parts

    with pytest.raises(WriterFenced, match="another run of the pipeline, or a later attempt of this task, took over"):
        sink.write(0, overtaken())
    assert lost_and_doubled(sink.seen(), 1) == (0, 0)
    assert sink.write(0).skipped


def test_an_attempt_that_died_with_its_marker_sent_and_not_committed_holds_nobody_up(
    server: Server, topics: Topics
) -> None:
    """Its transaction stays open for ten minutes, unless its id is taken; offsets of an open one are not told."""
    sink = Sink(server, topics, run="0001")
    sink.write(0)
    dead = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "transactional.id": sink.target.identity.transactional_id(SINK, 0),
            "transaction.timeout.ms": 600_000,
        }
    )
    dead.init_transactions(30)
    dead.begin_transaction()
    dead.produce(sink.topic, b"never committed", partition=0)
    dead.flush(30)
    group = Consumer({"bootstrap.servers": server.bootstrap, "group.id": sink.group_id}).consumer_group_metadata()
    dead.send_offsets_to_transaction([TopicPartition(sink.topic, 0, 2)], group, 30)
    assert not sink.write(1).skipped
    assert (lost_and_doubled(sink.seen(), 2), sink.marker()) == ((0, 0), 2)


def test_a_run_that_took_over_is_not_disturbed_by_the_older_one(server: Server, topics: Topics) -> None:
    sink = Sink(server, topics, run="0001")
    older = sink.target
    sink.write(0)
    sink.target = replace(older, run="0002")
    take_over(sink.target, 1)

    def disturbed() -> Iterator[pa.RecordBatch]:
        for part in parts_of(1, sink.topic, sink.dead_topic):
            with pytest.raises(WriterFenced, match="run 0002 began later"):
                write_epoch(older, 0, 1, iter([part]))
            yield part

    sink.write(1, disturbed())
    assert lost_and_doubled(sink.seen(), 2) == (0, 0)


def test_rows_that_fail_leave_neither_rows_nor_dead_letters_nor_marker(server: Server, topics: Topics) -> None:
    sink = Sink(server, topics)

    def failing() -> Iterator[pa.RecordBatch]:
        yield next(parts_of(0, sink.topic, sink.dead_topic))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sink.write(0, failing())
    assert (sink.seen(), sink.marker()) == (Counter(), None)
    sink.write(0)
    assert lost_and_doubled(sink.seen(), 1) == (0, 0)


def test_a_topic_that_takes_less_than_a_batch_is_told_with_what_to_lower(server: Server, topics: Topics) -> None:
    """Its rows are small: who reads that a record is too large looks in the wrong place."""
    sink = Sink(server, topics)
    small = topics.create(server, max_message_bytes="1000")
    with pytest.raises(
        BadRows, match=r"MESSAGE_TOO_LARGE.*Batches grow to 4,000 bytes: .* lower the sink's batch_size"
    ):
        write_epoch(replace(sink.target, topic=small), 0, 0, parts_of(0, small, sink.dead_topic))
    lower = replace(sink.target, topic=small, batch_bytes=1_000)
    assert write_epoch(lower, 0, 0, parts_of(0, small, sink.dead_topic)).records == len(values_of(0))


def test_an_empty_task_has_a_marker_and_a_lost_one_stops_it(server: Server, topics: Topics) -> None:
    """Group offsets expire; deleting the group is the same, sooner."""
    sink = Sink(server, topics)
    assert sink.write(0, iter([])).records == 0
    assert sink.marker() == 1

    async def forget() -> None:
        async with Client(server.bootstrap) as client:
            settled(await Admin(client).delete_groups([sink.group_id]))

    asyncio.run(forget())
    with pytest.raises(EpochRefused, match="epoch 1 is to be written, but the group"):
        sink.write(1)


def test_at_least_once_by_choice(server: Server, topics: Topics) -> None:
    sink = Sink(server, topics, delivery=DeliveryGuarantee.AT_LEAST_ONCE)
    for _ in range(2):
        assert not sink.write(0).skipped
    assert (lost_and_doubled(sink.seen(), 1), sink.marker()) == ((0, len(values_of(0))), None)


@pytest.mark.parametrize("codec", list(Compression))
def test_records_are_what_the_rows_say(server: Server, topics: Topics, codec: Compression) -> None:
    moment = datetime(2026, 3, 4, 5, 6, 7, 891_000, tzinfo=UTC)
    sink = Sink(server, topics, codec=codec)
    headers = [{"key": "h", "value": b"x"}, {"key": "né", "value": None}]
    rows = [
        {"topic": sink.topic, "key": b"alice", "value": b"by key", "headers": headers, "timestamp": moment},
        {"topic": sink.topic, "key": None, "value": None, "headers": [], "partition": 2},
    ]
    sink.write(0, iter([batch_of(rows)]))
    by_key, named = sorted(committed(server.bootstrap, sink.topic, PARTITIONS), key=lambda one: one.value() or b"z")
    assert (by_key.key(), by_key.value()) == (b"alice", b"by key")
    assert by_key.headers() == [("h", b"x"), ("né", None)]
    assert by_key.timestamp()[1] == int(moment.timestamp() * 1000)
    assert by_key.partition() == (murmur2(b"alice") & 0x7FFF_FFFF) % PARTITIONS
    assert (named.key(), named.value(), named.partition(), named.headers()) == (None, None, 2, None)


def by_length(_: bytes | None, value: bytes | None, partitions: int) -> int:
    return len(value or b"") % partitions


@pytest.mark.parametrize("partitioner", ["round-robin", f"{__name__}:by_length"])
def test_partitioners_by_choice(server: Server, topics: Topics, partitioner: str) -> None:
    sink = Sink(server, topics, partitioner=partitioner)
    rows = [{"topic": sink.topic, "key": b"same", "value": b"v" * n} for n in range(6)]
    sink.write(0, iter([batch_of(rows)]))
    found = {len(one.value()): one.partition() for one in committed(server.bootstrap, sink.topic, PARTITIONS)}
    assert found == {n: n % PARTITIONS for n in range(6)}


class Writing:
    """`epoch_rows` in a process of its own, and what it said."""

    def __init__(self, sink: Sink, first: int, last: int) -> None:
        names = (sink.server.bootstrap, sink.pipeline, sink.topic, sink.dead_topic)
        command = [sys.executable, epoch_rows.__file__, *names, str(first), str(last)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def lines(self) -> Iterator[tuple[str, int]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what, epoch, *_ = line.split()
            yield what, int(epoch)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def write_with_kills(sink: Sink, epochs: int, deaths: list[int]) -> list[str]:
    """Have processes write epochs as an engine does. Each but the last is killed at a line of its own.

    What a process says when it is killed never reached the checkpoint. What the others said of their epochs.
    """
    done, said = 0, []
    for death in [*deaths, None]:
        writing = Writing(sink, done, epochs - 1)
        try:
            for number, (what, epoch) in enumerate(writing.lines()):
                if number == death:
                    break
                if what != "rows":
                    done = epoch + 1
                    said.append(what)
            else:
                assert (death, writing.process.wait()) == (None, 0)
        finally:
            writing.kill()
    assert done == epochs
    return said


LINES = epoch_rows.PARTS + 1  # That a process says of an epoch; the last of them when it has committed.


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_or_doubled_when_the_writer_is_killed(server: Server, topics: Topics, seed: int) -> None:
    sink, random = Sink(server, topics), Random(seed)
    deaths = [LINES - 1, *(random.randrange(2 * LINES) for _ in range(4))]
    said = write_with_kills(sink, 10, deaths)
    assert "skipped" in said  # Whoever dies when it has just committed cannot tell; the marker can.
    assert lost_and_doubled(sink.seen(), 10) == (0, 0)
    assert sink.marker() == 10


def test_nothing_is_lost_or_doubled_when_the_broker_is_killed(tmp_path: Path, topics: Topics) -> None:
    """In the middle of an epoch, twice: the writer waits for the broker and goes on."""
    with running_node(tmp_path / "node") as node:
        sink, random = Sink(node, topics), Random(1)
        at = {random.randrange(3, 5 * epoch_rows.PARTS) for _ in range(2)} | {8}
        writing = Writing(sink, 0, 4)
        try:
            for number, _ in enumerate(writing.lines()):
                if number in at:
                    node.kill()
                    node.start()
            code = writing.process.wait()
        finally:
            writing.kill()
        done = sink.marker() or 0
        for epoch in range(done, 5):  # A task that gave up is tried again by the engine.
            assert code != 0
            sink.write(epoch)
        assert lost_and_doubled(sink.seen(), 5) == (0, 0)
