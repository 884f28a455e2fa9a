"""The same log compacted by Kafka and by Ottla: what is left is the same."""

import shutil
from pathlib import Path

import pytest
from peers.client import Read
from peers.dump import complaints
from peers.ours import COMPACTED, batches, running_ottla, served, served_committed
from peers.written import Written, segments

from ottla.core.log import files
from ottla.core.log.checkpoints import encode_offsets
from ottla.kernel import BatchHeader, scan
from ottla.storage.partition_log import PartitionLog

HEADER_FIELDS = (
    "base_offset",
    "last_offset",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
)


@pytest.fixture(params=COMPACTED)
def before(request: pytest.FixtureRequest, kafka_written: Written, tmp_path: Path) -> Path:
    """A partition as it was before Kafka's cleaner came, with the checkpoint it would have started from."""
    name = f"{request.param}-0"
    shutil.copytree(kafka_written.before_cleaning / name, tmp_path / name)
    dirty_from = {(request.param, 0): kafka_written.dirty_from[name]}
    (tmp_path / files.CLEANER_OFFSETS).write_bytes(encode_offsets(dirty_from))
    return tmp_path / name


def fold(records: list[Read]) -> dict[bytes | None, bytes]:
    """What somebody knows who has read everything: the last value of each key."""
    known: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            known.pop(record.key, None)
        else:
            known[record.key] = record.value
    return known


def shape(header: BatchHeader) -> tuple[object, ...]:
    """All of a header that does not depend on when the cleaner ran."""
    horizon = header.delete_horizon_ms is not None
    return *(getattr(header, name) for name in HEADER_FIELDS), header.codec, header.max_timestamp, horizon


def headers_on_disk(directory: Path) -> list[tuple[object, ...]]:
    return [shape(header) for path in segments(directory) for header in scan(path.read_bytes()).headers]


def headers_served(log: PartitionLog) -> list[tuple[object, ...]]:
    return [shape(header) for header, _ in batches(log, log.log.end_offset)]


def test_same_records_survive(before: Path, kafka_written: Written) -> None:
    truth = kafka_written.truth[before.name]
    with running_ottla(before.parent) as node:
        log = node.log(before.name)
        offsets_before = len(served(log))
        assert [cleaned.end_offset for cleaned in node.clean()] == [log.log.active.base_offset]
        assert served(log) == truth.records
        assert served_committed(log) == truth.committed
        assert (log.log.log_start_offset, log.log.end_offset) == (truth.log_start, truth.log_end)
    assert len(truth.records) < offsets_before


def test_same_batches_survive(before: Path, kafka_written: Written) -> None:
    """Also the empty ones that carry a producer's sequence, the markers, and which batches got a delete horizon."""
    with running_ottla(before.parent) as node:
        node.clean()
        assert headers_served(node.log(before.name)) == headers_on_disk(kafka_written.clean / before.name)


def test_same_segments_are_merged(before: Path, kafka_written: Written) -> None:
    with running_ottla(before.parent) as node:
        node.clean()
    assert [path.name for path in segments(before)] == [
        path.name for path in segments(kafka_written.clean / before.name)
    ]


def test_keyed_contents_are_unchanged(before: Path) -> None:
    """I20, without Kafka's help: who reads the cleaned log knows what a reader of the original knows."""
    with running_ottla(before.parent) as node:
        log = node.log(before.name)
        known = fold(served_committed(log))
        node.clean()
        assert {key: value for key, value in fold(served_committed(log)).items() if key is not None} == {
            key: value for key, value in known.items() if key is not None
        }


def test_kafkas_tool_accepts_what_is_left(before: Path, kafka_jars: Path) -> None:
    with running_ottla(before.parent) as node:
        node.clean()
    assert complaints(kafka_jars, [before], compacted=True) == []


def test_kafkas_cleaned_log_is_clean(kafka_written: Written, tmp_path: Path) -> None:
    """What Kafka has just cleaned leaves Ottla's cleaner nothing to do."""
    shutil.copytree(kafka_written.clean, tmp_path / "data")
    with running_ottla(tmp_path / "data") as node:
        assert node.clean() == []
