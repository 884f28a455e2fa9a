"""Ottla opens directories that real Kafka wrote, stopped cleanly or killed, and says the same of them as Kafka."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peers import scenario
from peers.client import Found
from peers.dump import dump, readable_files
from peers.ours import OttlaNode, batches, config_of, running_ottla, served, served_committed
from peers.written import Truth, Written

from ottla.core.log import checkpoints, files
from ottla.core.log.snapshots import decode_snapshot
from ottla.kernel import read_records
from ottla.observe.trace import names, recording
from ottla.storage.partition_log import PartitionLog

NAMES = [f"{topic}-{partition}" for topic, partition in scenario.NAMES]
INDEXES_AND_LOGS = {".log", ".index", ".timeindex", ".txnindex"}
CUT_AT_RECOVERY = ["rotten-0", "torn-0"]


@pytest.fixture(scope="module", params=["clean", "killed"])
def opened(
    request: pytest.FixtureRequest, kafka_written: Written, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OttlaNode]:
    source: Path = getattr(kafka_written, request.param)
    directory = tmp_path_factory.mktemp("opened") / request.param
    shutil.copytree(source, directory)
    with running_ottla(directory) as node:
        assert node.store.offline == {}
        yield node


@pytest.fixture(params=NAMES)
def log(request: pytest.FixtureRequest, opened: OttlaNode) -> PartitionLog:
    return opened.log(request.param)


@pytest.fixture
def truth(log: PartitionLog, kafka_written: Written) -> Truth:
    return kafka_written.truth[log.name]


def test_same_offsets(log: PartitionLog, truth: Truth) -> None:
    state = log.state
    assert (state.log_start_offset, state.end_offset) == (truth.log_start, truth.log_end)
    assert state.last_stable_offset == truth.last_stable


def test_same_records(log: PartitionLog, truth: Truth) -> None:
    assert served(log) == truth.records


def test_same_committed_records(log: PartitionLog, truth: Truth) -> None:
    assert served_committed(log) == truth.committed


def test_same_look_ups_by_time(log: PartitionLog, truth: Truth) -> None:
    answers = {}
    for timestamp in truth.by_time:
        found = log.find_time(timestamp)
        answers[timestamp] = Found(-1, -1) if found is None else Found(found.offset, found.timestamp)
    assert answers == (_corrected(truth.by_time, log) if log.key[0] in scenario.COMPACTED else truth.by_time)


def test_same_newest_record(log: PartitionLog, truth: Truth) -> None:
    found = log.find_max_timestamp()
    assert (Found(-1, -1) if found is None else Found(found.offset, found.timestamp)) == truth.newest


def test_same_producers(log: PartitionLog, kafka_written: Written) -> None:
    """Rebuilt from snapshots and log, against the snapshot that Kafka wrote last."""
    snapshots = sorted((kafka_written.clean / log.name).glob("*.snapshot"))
    expected = decode_snapshot(snapshots[-1].read_bytes()) if snapshots else []
    ours = log.state.producers.by_id
    assert {producer.producer_id for producer in expected} == set(ours)
    for theirs in expected:
        mine = ours[theirs.producer_id]
        assert (mine.epoch, mine.coordinator_epoch) == (theirs.epoch, theirs.coordinator_epoch)
        assert (mine.last_timestamp, mine.txn_first_offset) == (theirs.last_timestamp, theirs.txn_first_offset)
        assert (mine.last_sequence, mine.last_data_offset) == (theirs.last_sequence, theirs.last_data_offset)


def test_same_aborted_transactions(opened: OttlaNode, kafka_jars: Path, kafka_written: Written) -> None:
    """Against the transaction indexes as Kafka's own tool reads them."""
    log = opened.log("transactions-0")
    indexes = [path for path in readable_files(kafka_written.clean / log.name) if path.suffix == ".txnindex"]
    theirs = [
        (int(line["producerId"]), int(line["firstOffset"]), int(line["lastOffset"]), int(line["lastStableOffset"]))
        for path, dumped in sorted(dump(kafka_jars, indexes).items())
        for line in dumped.lines
    ]
    assert len(theirs) > 3
    assert [tuple(txn) for txn in log.aborted_transactions(0, log.state.end_offset)] == theirs


def test_same_leader_epochs(log: PartitionLog, kafka_written: Written) -> None:
    """Kafka began an epoch at the end of the log when it was started again after the kill."""
    checkpoint = (kafka_written.clean / log.name / files.LEADER_EPOCHS).read_bytes()
    expected = checkpoints.decode_epochs(checkpoint)
    end_offset = log.state.end_offset
    assert [entry for entry in log.state.epochs.entries if entry.start_offset < end_offset] == [
        entry for entry in expected if entry.start_offset < end_offset
    ]


@pytest.mark.parametrize("name", NAMES)
def test_recovery_leaves_the_files_that_kafkas_does(kafka_written: Written, tmp_path: Path, name: str) -> None:
    """Killed, then recovered and closed: by Kafka in one directory, by Ottla in the other, byte for byte the same."""
    directory = tmp_path / "data"
    shutil.copytree(kafka_written.killed, directory, ignore=_all_partitions_but(name))
    with recording() as events, running_ottla(directory):
        pass
    theirs, ours, truth = kafka_written.clean / name, directory / name, kafka_written.truth[name]
    # Kafka makes all snapshots anew from what its cleaner left; Ottla keeps those that were taken when all was there.
    is_compacted = name in [f"{topic}-0" for topic in scenario.COMPACTED]
    snapshots_after = truth.log_end - 1 if is_compacted else truth.log_start
    assert _contents(ours, snapshots_after) == _contents(theirs, snapshots_after)
    assert ("log.cut" in names(events)) == (name in CUT_AT_RECOVERY)


def test_clean_directory_is_left_as_it_was(kafka_written: Written, tmp_path: Path) -> None:
    """Opening and closing a log that needs nothing changes no byte of it."""
    directory = tmp_path / "data"
    shutil.copytree(kafka_written.clean, directory)
    with recording() as events, running_ottla(directory):
        pass
    assert [event for event in events if event.warning] == []
    for name in NAMES:
        log_start = kafka_written.truth[name].log_start
        assert _contents(directory / name, log_start) == _contents(kafka_written.clean / name, log_start)


@pytest.mark.parametrize("topic", scenario.COMPACTED)
def test_recovery_keeps_the_gaps_of_an_earlier_compaction(kafka_written: Written, tmp_path: Path, topic: str) -> None:
    """A topic may have been compacted before its policy became delete: its gaps are no loss, cutting there would be."""
    directory = tmp_path / "data"
    shutil.copytree(kafka_written.killed, directory, ignore=_all_partitions_but(f"{topic}-0"))
    with running_ottla(directory, lambda topic: config_of(topic, {"cleanup.policy": "delete"})) as node:
        log = node.log(f"{topic}-0")
        assert served(log) == kafka_written.truth[log.name].records


def _corrected(answers: dict[int, Found], log: PartitionLog) -> dict[int, Found]:
    """Kafka's answers, with the records that it missed.

    Kafka looks into the first segment that seems to reach the time, and no further. A batch that the cleaner emptied
    keeps its largest timestamp, and an emptied segment counts by the time of its file; so it may find nothing there
    although it serves later records.
    """
    records = [record for header, batch in batches(log, log.state.end_offset) for record in read_records(batch, header)]

    def first_at(timestamp: int) -> Found:
        found = next((record for record in records if record.timestamp >= timestamp), None)
        return Found(-1, -1) if found is None else Found(found.offset, found.timestamp)

    return {timestamp: answer if answer.offset >= 0 else first_at(timestamp) for timestamp, answer in answers.items()}


def _all_partitions_but(name: str) -> Callable[[str, list[str]], list[str]]:
    def ignored(directory: str, entries: list[str]) -> list[str]:
        return [entry for entry in entries if entry != name and (Path(directory) / entry).is_dir()]

    return ignored


def _contents(directory: Path, snapshots_after: int) -> dict[str, object]:
    """Files by name. A snapshot as a set of producers: Kafka writes them in the order of a hash table.

    One that is not past the log start tells of nothing that is there, and may be kept or not.
    """
    found: dict[str, object] = {}
    for path in directory.iterdir():
        if path.suffix in INDEXES_AND_LOGS:
            found[path.name] = path.read_bytes()
        elif path.suffix == ".snapshot" and int(path.stem) > snapshots_after:
            found[path.name] = sorted(map(repr, decode_snapshot(path.read_bytes())))
    return found
