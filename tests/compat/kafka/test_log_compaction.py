"""The same log compacted by Kafka and by Ottla: what is left is the same."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from peers import scenario
from peers.client import Read
from peers.dump import complaints
from peers.ours import OttlaNode, running_ottla, served_committed
from peers.written import CleanerPass, Written, segments

from ottla.core.log import files
from ottla.core.log.checkpoints import encode_offsets
from ottla.kernel import BatchHeader, Record, read_records, scan

PASSES = [(topic, 0) for topic in scenario.CLEANED_ONCE] + [
    (topic, number) for topic in scenario.CLEANED_AGAIN for number in range(scenario.PASSES)
]

HEADER_FIELDS = (
    "base_offset",
    "last_offset",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "count",
)


class Cleaning(NamedTuple):
    """A partition as it was before a pass of Kafka's cleaner, held by Ottla."""

    kafka: CleanerPass
    node: OttlaNode
    directory: Path


@pytest.fixture(params=PASSES, ids=lambda each: f"{each[0]}-pass-{each[1] + 1}")
def cleaning(request: pytest.FixtureRequest, kafka_written: Written, tmp_path: Path) -> Iterator[Cleaning]:
    topic, number = request.param
    kafka = next(each for each in kafka_written.passes if (each.topic, each.number) == (topic, number))
    shutil.copytree(kafka.before, tmp_path / kafka.before.name)
    shutil.copy(kafka_written.clean / files.META_PROPERTIES, tmp_path)
    (tmp_path / files.CLEANER_OFFSETS).write_bytes(encode_offsets({(topic, 0): kafka.start}))
    with running_ottla(tmp_path) as node:
        yield Cleaning(kafka, node, tmp_path / kafka.before.name)


def batches_below(directory: Path, end: int) -> list[tuple[BatchHeader, list[Record]]]:
    """What the files hold of the offsets below `end`."""
    found = []
    for path in segments(directory):
        log, position = path.read_bytes(), 0
        for header in scan(log).headers:
            if header.base_offset < end:
                found.append((header, read_records(log, header, position)))
            position += header.size
    return found


def shape(header: BatchHeader) -> tuple[object, ...]:
    """All of a header that does not depend on when the cleaner ran."""
    horizon = header.delete_horizon_ms is not None
    return *(getattr(header, name) for name in HEADER_FIELDS), header.codec, header.max_timestamp, horizon


def fold(records: list[Read]) -> dict[bytes, bytes]:
    """What somebody knows who has read everything: the last value of each key."""
    known: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            known.pop(record.key, None)
        else:
            known[record.key] = record.value
    return known


def test_same_range_is_cleaned(cleaning: Cleaning) -> None:
    assert cleaning.kafka.start < cleaning.kafka.end
    assert [cleaned.end_offset for cleaned in cleaning.node.clean()] == [cleaning.kafka.end]


def test_same_records_survive(cleaning: Cleaning) -> None:
    end = cleaning.kafka.end
    before = sum(len(records) for _, records in batches_below(cleaning.directory, end))
    cleaning.node.clean()
    left = [record for _, records in batches_below(cleaning.directory, end) for record in records]
    assert left == [record for _, records in batches_below(cleaning.kafka.after, end) for record in records]
    assert len(left) < before


def test_same_batches_survive(cleaning: Cleaning) -> None:
    """Also the empty ones that carry a producer's sequence, the markers, and which batches got a delete horizon."""
    end = cleaning.kafka.end
    cleaning.node.clean()
    assert [shape(header) for header, _ in batches_below(cleaning.directory, end)] == [
        shape(header) for header, _ in batches_below(cleaning.kafka.after, end)
    ]


def test_same_segments_are_merged(cleaning: Cleaning) -> None:
    def bases(directory: Path) -> list[int]:
        return [base for path in segments(directory) if (base := int(path.stem)) <= cleaning.kafka.end]

    cleaning.node.clean()
    assert bases(cleaning.directory) == bases(cleaning.kafka.after)


def test_keyed_contents_are_unchanged(cleaning: Cleaning) -> None:
    """I20, without Kafka's help: who reads the cleaned log knows what a reader of the original knows."""
    log = cleaning.node.log(cleaning.directory.name)
    known, stable = fold(served_committed(log)), log.state.last_stable_offset
    cleaning.node.clean()
    assert fold(served_committed(log)) == known
    assert log.state.last_stable_offset == stable


def test_kafkas_tool_accepts_what_is_left(kafka_written: Written, kafka_jars: Path, tmp_path: Path) -> None:
    cleaned = []
    for kafka in kafka_written.passes:
        data = tmp_path / f"{kafka.topic}-{kafka.number}"
        shutil.copytree(kafka.before, data / kafka.before.name)
        shutil.copy(kafka_written.clean / files.META_PROPERTIES, data)
        (data / files.CLEANER_OFFSETS).write_bytes(encode_offsets({(kafka.topic, 0): kafka.start}))
        with running_ottla(data) as node:
            node.clean()
        cleaned.append(data / kafka.before.name)
    assert complaints(kafka_jars, cleaned, compacted=True) == []


def test_kafkas_cleaned_log_is_clean(kafka_written: Written, tmp_path: Path) -> None:
    """What Kafka has just cleaned leaves Ottla's cleaner nothing to do."""
    shutil.copytree(kafka_written.clean, tmp_path / "data")
    with running_ottla(tmp_path / "data") as node:
        assert node.clean() == []


def test_scenario_meets_the_hard_cases(kafka_written: Written) -> None:
    """Kafka left empty batches, gave horizons to tombstones and to markers, and removed some of each later."""
    mixed = [each for each in kafka_written.passes if each.topic == "mixed"]
    left = [header for each in mixed for header, _ in batches_below(each.after, each.end)]
    assert any(header.count == 0 for header in left)
    assert {header.is_control for header in left if header.delete_horizon_ms is not None} == {False, True}
    first, last = mixed[0], mixed[-1]
    markers_before, markers_after = (
        sum(header.is_control and header.count > 0 for header, _ in batches_below(directory, first.end))
        for directory in (first.before, last.after)
    )
    assert 0 < markers_after < markers_before
