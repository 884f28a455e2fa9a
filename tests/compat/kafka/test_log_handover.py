"""Kafka writes, Ottla takes the directory over and writes on, Kafka takes it back: nobody notices, nothing is lost."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec
from peers import scenario
from peers.broker import DATA, KafkaBroker, running_broker
from peers.client import Client, Draft, Found, Read, send
from peers.ours import OttlaNode, running_ottla, served, served_committed
from peers.workload import Sender, interleaved_transactions
from peers.written import SETTINGS, Written

from ottla.core.log.files import METADATA_TOPIC, SEGMENT_SUMMARY
from ottla.kernel import Codec
from ottla.storage.segment_files import TimeFound

NAMES = [f"{topic}-{partition}" for topic, partition in scenario.NAMES]
READERS_OF_LOGS = {
    "AbstractIndex",
    "Cleaner",
    "LeaderEpochFileCache",
    "LocalLog",
    "LogCleaner",
    "LogCleanerManager",
    "LogLoader",
    "LogManager",
    "LogSegment",
    "OffsetIndex",
    "Partition",
    "ProducerStateManager",
    "ReplicaManager",
    "TimeIndex",
    "TransactionIndex",
    "UnifiedLog",
}
"""The classes of Kafka that would have something to say about a log that is not as it should be."""


class Said(NamedTuple):
    """What one of the two says of a partition."""

    log_start: int
    log_end: int
    last_stable: int
    records: list[Read]
    committed: list[Read]
    newest: Found


def write_on(node: OttlaNode) -> None:
    """Every way of changing a log, on logs that Kafka began."""
    for codec in Codec:
        Sender(seed=codec).fill(node.log("codecs-0"), 4, codecs=(codec,))
    Sender().fill(node.log("empty-0"), 10)
    Sender().fill(node.log("append-time-0"), 5)
    for partition in range(2):
        Sender(5000, seed=partition).fill(node.log(f"idempotent-{partition}"), 7)
    for topic in scenario.RECOMPRESSING:
        Sender().fill(node.log(f"recompressed-{topic}-0"), 3)
    interleaved_transactions(node.log("transactions-0"), 5001, rounds=3)
    node.log("hourly-0").truncate(node.log("hourly-0").state.end_offset - 20)
    Sender(5010).fill(node.log("hourly-0"), 3)
    Sender().fill(node.log("trimmed-0"), 10)
    for topic in scenario.COMPACTED:
        log = node.log(f"{topic}-0")
        Sender().keyed(log, range(3, 9))
        Sender().keyed(log, range(5), tombstone=True)
        log.roll()
        Sender().keyed(log, range(2))
    node.commit()
    node.log("trimmed-0").delete_records(190)
    node.retain()
    assert len(node.clean()) == len(scenario.COMPACTED)


def say(node: OttlaNode, name: str) -> Said:
    log = node.log(name)
    found = log.find_max_timestamp()
    return Said(
        log.state.log_start_offset,
        log.state.end_offset,
        log.state.last_stable_offset,
        served(log),
        served_committed(log),
        Found(-1, -1) if found is None else Found(found.offset, found.timestamp),
    )


def ask(client: Client) -> dict[str, Said]:
    partitions = [TopicPartition(*each) for each in scenario.NAMES]
    starts = client.list_offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))
    ends = client.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))
    stable = client.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), committed=True)
    newest = client.list_offsets(dict.fromkeys(partitions, OffsetSpec.max_timestamp()))
    records = client.read_all(scenario.NAMES)
    committed = client.read_all(scenario.NAMES, committed=True)
    return {
        f"{each[0]}-{each[1]}": Said(
            starts[each].offset, ends[each].offset, stable[each].offset, records[each], committed[each], newest[each]
        )
        for each in scenario.NAMES
    }


class Handover(NamedTuple):
    stopped: bool
    ottla: dict[str, Said]
    kafka: dict[str, Said]
    broker: KafkaBroker
    said_at_start: list[str]


@pytest.fixture(scope="module", params=["stopped", "killed"])
def handover(
    request: pytest.FixtureRequest,
    kafka_jars: Path,
    kafka_written: Written,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Handover]:
    """Ottla is stopped, so that Kafka believes the files, or killed, so that Kafka reads and mends them."""
    stopped = request.param == "stopped"
    home = tmp_path_factory.mktemp("handover")
    shutil.copytree(kafka_written.clean, home / DATA)
    node = OttlaNode(home / DATA)
    write_on(node)
    ottla = {name: say(node, name) for name in NAMES}
    if stopped:
        node.stop()
    else:
        node.kill()
    with running_broker(kafka_jars, home, SETTINGS) as broker:
        kafka = ask(Client(broker.bootstrap))
        yield Handover(stopped, ottla, kafka, broker, broker.log().splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_kafka_serves_what_ottla_wrote(handover: Handover, name: str) -> None:
    assert handover.kafka[name] == handover.ottla[name]


@pytest.mark.parametrize("name", NAMES)
def test_something_was_written(handover: Handover, kafka_written: Written, name: str) -> None:
    """Except to the two logs that served their purpose in recovery."""
    changed = handover.ottla[name].records != kafka_written.truth[name].records
    assert changed == (name not in ("torn-0", "rotten-0"))


def test_no_log_seems_odd_to_kafka(handover: Handover) -> None:
    of_logs = [line.split(maxsplit=3) for line in handover.said_at_start if line.count(" ") >= 3]
    assert [text for _, level, name, text in of_logs if level in ("WARN", "ERROR") and name in READERS_OF_LOGS] == []


def test_kafka_recovers_what_was_not_stopped(handover: Handover) -> None:
    """The mark of a clean shutdown is honoured; only the metadata log is always read again."""
    assert any("since clean shutdown file was found" in line for line in handover.said_at_start) == handover.stopped
    recovered = [line for line in handover.said_at_start if "Recovering unflushed segment" in line]
    assert any(METADATA_TOPIC not in line for line in recovered) == (not handover.stopped)


def test_kafka_writes_on(handover: Handover) -> None:
    """A record in each partition, after all the others."""
    client = Client(handover.broker.bootstrap)
    producer = client.producer(enable_idempotence=True)
    for topic, partition in scenario.NAMES:
        send(producer, topic, [Draft(b"key", b"after the handover", scenario.START_MS)], partition)
    ends = client.list_offsets({TopicPartition(*each): OffsetSpec.latest() for each in scenario.NAMES})
    for (topic, partition), found in ends.items():
        assert found.offset == handover.kafka[f"{topic}-{partition}"].log_end + 1


def look_up_every_time(data: Path, names: list[str]) -> dict[tuple[str, int], TimeFound | None]:
    with running_ottla(data) as node:
        logs = {name: node.log(name) for name in names}
        times = {(name, record.timestamp) for name, log in logs.items() for record in served(log)}
        return {(name, timestamp): logs[name].find_time(timestamp) for name, timestamp in times}


def test_what_ottla_notes_of_segments_is_left_alone_and_still_right(handover: Handover, tmp_path: Path) -> None:
    """Kafka does not know the file; what it wrote and cleaned meanwhile must mislead no look-up by time."""
    with_notes, without = tmp_path / "with", tmp_path / "without"
    fleeting = shutil.ignore_patterns("*.tmp")  # Kafka runs, and writes its checkpoints.
    for copy in (with_notes, without):
        shutil.copytree(handover.broker.log_dir, copy, ignore=fleeting)
    noted = [name for name in NAMES if (with_notes / name / SEGMENT_SUMMARY).exists()]
    assert bool(noted) == handover.stopped
    for name in noted:
        (without / name / SEGMENT_SUMMARY).unlink()
    assert look_up_every_time(with_notes, noted) == look_up_every_time(without, noted)
