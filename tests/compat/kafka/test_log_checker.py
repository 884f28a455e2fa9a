"""Kafka's DumpLogSegments as the judge of what Ottla writes: it must be silent on good files and speak on bad ones."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from peers import scenario
from peers.dump import complaints, dump, readable_files
from peers.written import Written, segments

COMPACTED = {f"{topic}-0" for topic in scenario.COMPACTED}
NAMES = {f"{topic}-{partition}" for topic, partition in scenario.NAMES}


def flip_record(directory: Path) -> None:
    path = segments(directory)[0]
    log = bytearray(path.read_bytes())
    log[100] ^= 1
    path.write_bytes(log)


def tear_tail(directory: Path) -> None:
    path = segments(directory)[-1]
    path.write_bytes(path.read_bytes() + bytes(10))


def lose_batch(directory: Path) -> None:
    path = segments(directory)[0]
    log = path.read_bytes()
    first = 12 + int.from_bytes(log[8:12], "big")
    second = 12 + int.from_bytes(log[first + 8 : first + 12], "big")
    path.write_bytes(log[:first] + log[first + second :])


def shift_index(directory: Path) -> None:
    path = min(directory.glob("*.index"))
    index = bytearray(path.read_bytes())
    index[3] += 1
    path.write_bytes(index)


def shift_time(directory: Path) -> None:
    path = min(directory.glob("*.timeindex"))
    index = bytearray(path.read_bytes())
    index[7] ^= 1
    path.write_bytes(index)


def spoil_snapshot(directory: Path) -> None:
    path = max(directory.glob("*.snapshot"))
    snapshot = bytearray(path.read_bytes())
    snapshot[-1] ^= 1
    path.write_bytes(snapshot)


def test_silent_on_kafkas_own_files(kafka_jars: Path, kafka_written: Written) -> None:
    assert complaints(kafka_jars, [kafka_written.clean / name for name in sorted(NAMES - COMPACTED)]) == []
    assert complaints(kafka_jars, [kafka_written.clean / name for name in sorted(COMPACTED)], compacted=True) == []


@pytest.mark.parametrize("damage", [flip_record, tear_tail, lose_batch, shift_index, shift_time, spoil_snapshot])
def test_speaks_of_planted_damage(
    kafka_jars: Path, kafka_written: Written, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    directory = tmp_path / "transactions-0"
    shutil.copytree(kafka_written.clean / "transactions-0", directory)
    damage(directory)
    assert complaints(kafka_jars, [directory]) != []


def test_sees_every_kind_of_file(kafka_jars: Path, kafka_written: Written) -> None:
    """A file that the tool passes over would be judged good."""
    dumps = dump(kafka_jars, readable_files(kafka_written.clean / "transactions-0"))
    assert {path.suffix for path, dumped in dumps.items() if dumped.lines} == {
        ".log",
        ".index",
        ".timeindex",
        ".txnindex",
        ".snapshot",
    }
