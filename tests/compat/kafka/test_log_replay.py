"""Fed with the batches of Kafka's logs, Ottla writes Kafka's files: log, indexes and snapshots, byte for byte."""

from pathlib import Path

import pytest
from peers import scenario
from peers.ours import OttlaNode, config_of, running_ottla
from peers.written import Written, segments

from ottla.core.log.producers import AppendOrigin
from ottla.core.log.snapshots import decode_snapshot
from ottla.kernel import scan

REWRITTEN = (*scenario.COMPACTED, "trimmed")
"""Logs of which Kafka has removed a part since they were written."""

COPIED = [f"{topic}-{partition}" for topic, partition in scenario.NAMES if topic not in REWRITTEN]
LED = [name for name in COPIED if not name.startswith(("append-time", "recompressed"))]
"""Logs whose batches the broker took from producers as they were."""

KAFKA_WROTE = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}


def create(node: OttlaNode, name: str) -> None:
    topic, _, partition = name.rpartition("-")
    node.store.create(topic, int(partition), bytes([7] * 16), config_of(topic))


def contents(directory: Path) -> dict[str, object]:
    """Files by name; snapshots as what they say, because Kafka writes their producers in no particular order."""
    found: dict[str, object] = {}
    for path in directory.iterdir():
        if path.suffix == ".snapshot" and int(path.stem) > 0:
            found[path.name] = sorted(map(repr, decode_snapshot(path.read_bytes())))
        elif path.suffix in KAFKA_WROTE - {".snapshot"}:
            found[path.name] = path.read_bytes()
    return found


@pytest.mark.parametrize("name", COPIED)
def test_follower_copies_kafka(kafka_written: Written, tmp_path: Path, name: str) -> None:
    with running_ottla(tmp_path) as node:
        create(node, name)
        for path in segments(kafka_written.clean / name):
            # As fetched from a leader: many batches at once, numbered.
            node.log(name).append_replicated(path.read_bytes())
    assert contents(tmp_path / name) == contents(kafka_written.clean / name)


@pytest.mark.parametrize("name", LED)
def test_leader_writes_as_kafka(kafka_written: Written, tmp_path: Path, name: str) -> None:
    """Every batch comes as its producer or the coordinator sent it; it is numbered, rolled and indexed as Kafka did."""
    with running_ottla(tmp_path) as node:
        create(node, name)
        for path in segments(kafka_written.clean / name):
            log, position = bytearray(path.read_bytes()), 0
            for header in scan(log).headers:
                batch = log[position : position + header.size]
                batch[:8], batch[12:16] = bytes(8), b"\xff" * 4
                origin = AppendOrigin.COORDINATOR if header.is_control else AppendOrigin.CLIENT
                node.log(name).append(batch, header.leader_epoch, origin=origin)
                position += header.size
    assert contents(tmp_path / name) == contents(kafka_written.clean / name)


@pytest.mark.parametrize("codec", scenario.RECOMPRESSING)
def test_leader_compresses_as_the_topic_says(kafka_written: Written, tmp_path: Path, codec: str) -> None:
    """The codec of the topic whatever the producer used, and the same records."""
    name = f"recompressed-{codec}-0"
    with running_ottla(tmp_path) as node:
        create(node, name)
        given = bytearray(segments(kafka_written.clean / "codecs-0")[1].read_bytes())
        position = 0
        for header in scan(given).headers:
            batch = given[position : position + header.size]
            batch[:8] = bytes(8)
            node.log(name).append(batch, 0)
            position += header.size
    written = scan(segments(tmp_path / name)[0].read_bytes()).headers
    expected = "NONE" if codec == "uncompressed" else codec.upper()
    assert {header.codec.name for header in written} == {expected}
