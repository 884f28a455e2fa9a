"""`ottla log verify` finds what is wrong, names it, and is silent about what is right."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_partition import FIRST, SECOND, START, Sample, records, write_sample

from ottla.cli import main
from ottla.core.log.checkpoints import EpochStart, encode_epochs
from ottla.core.log.files import SEGMENT_SUMMARY
from ottla.core.log.indexes import OFFSET_ENTRY, TIME_ENTRY, AbortedTxn
from ottla.core.log.summary import SummaryEntry, encode_summary
from ottla.kernel import BatchHeader, batch_crc, build_batch, pack_header, read_header


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return write_sample(tmp_path / "t-0")


def findings(capsys: pytest.CaptureFixture[str], path: Path) -> tuple[int, list[dict[str, object]]]:
    """Exit code and all lines but the summary."""
    code = main(["log", "verify", str(path), "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["type"] == "summary"
    assert (code == 1) == any(line["type"] == "problem" for line in lines)
    return code, lines[:-1]


def overwrite(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_nothing_wrong(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings(capsys, sample.path) == (0, [])
    main(["log", "verify", str(sample.path), "--json"])
    summary = json.loads(capsys.readouterr().out)
    assert (summary["segments"], summary["batches"], summary["records"]) == (2, 4, 8)


def rewritten(path: Path, position: int, **changes: int) -> None:
    """Change fields of a batch's header and give it the checksum that makes it look untouched."""
    content = bytearray(path.read_bytes())
    header = read_header(content, position)._replace(**changes)
    content[position : position + 61] = pack_header(header)
    crc = batch_crc(content, position, header.size)
    content[position : position + 61] = pack_header(BatchHeader(*header._replace(crc=crc)))
    path.write_bytes(content)


def flip_a_bit(sample: Sample) -> None:
    overwrite(sample.file(f"{FIRST}.log"), sample.positions[1] + 70, b"\x55")


def tear_the_end(sample: Sample) -> None:
    path = sample.file(f"{SECOND}.log")
    path.write_bytes(path.read_bytes()[:-3])


def add_a_stump(sample: Sample) -> None:
    path = sample.file(f"{SECOND}.log")
    path.write_bytes(path.read_bytes() + bytes(9))


def repeat_an_offset(sample: Sample) -> None:
    overwrite(sample.file(f"{FIRST}.log"), sample.positions[2], (4).to_bytes(8, "big"))


def begin_before_the_segment(sample: Sample) -> None:
    sample.file(f"{SECOND}.log").write_bytes(build_batch(records(5, 1), leader_epoch=1))


def fall_in_epoch(sample: Sample) -> None:
    rewritten(sample.file(f"{FIRST}.log"), sample.positions[0], leader_epoch=3)


def claim_a_record_more(sample: Sample) -> None:
    rewritten(sample.file(f"{FIRST}.log"), 0, count=4)


def claim_a_later_time(sample: Sample) -> None:
    rewritten(sample.file(f"{SECOND}.log"), 0, max_timestamp=START + 70)


def point_between_batches(sample: Sample) -> None:
    overwrite(sample.file(f"{FIRST}.index"), 0, OFFSET_ENTRY.pack(4, sample.positions[1] + 1))


def point_at_another_batch(sample: Sample) -> None:
    overwrite(sample.file(f"{FIRST}.index"), 0, OFFSET_ENTRY.pack(3, sample.positions[1]))


def fall_in_the_index(sample: Sample) -> None:
    overwrite(sample.file(f"{FIRST}.index"), 8, OFFSET_ENTRY.pack(4, sample.positions[1]))


def point_past_the_end(sample: Sample) -> None:
    overwrite(sample.file(f"{FIRST}.index"), 8, OFFSET_ENTRY.pack(5, 10_000))


def cut_the_index(sample: Sample) -> None:
    overwrite(sample.file(f"{FIRST}.index"), 16, b"\x00\x00\x00")


def tell_a_wrong_time(sample: Sample) -> None:
    overwrite(sample.file(f"{FIRST}.timeindex"), 0, TIME_ENTRY.pack(START + 1, 2))


def hide_a_later_time(sample: Sample) -> None:
    log = build_batch([records(6, 1)[0]._replace(timestamp=START + 90)], leader_epoch=1)
    sample.file(f"{SECOND}.log").write_bytes(log + build_batch(records(7, 1), leader_epoch=1))
    sample.file(f"{SECOND}.timeindex").write_bytes(TIME_ENTRY.pack(START + 7, 1))


def forget_the_aborted(sample: Sample) -> None:
    sample.file(f"{FIRST}.txnindex").unlink()


def accuse_another_producer(sample: Sample) -> None:
    sample.file(f"{FIRST}.txnindex").write_bytes(AbortedTxn(8, 3, 5, 6).encode())


def abort_from_elsewhere(sample: Sample) -> None:
    sample.file(f"{FIRST}.txnindex").write_bytes(AbortedTxn(7, 4, 5, 6).encode())


def abort_without_a_marker(sample: Sample) -> None:
    path = sample.file(f"{SECOND}.txnindex")
    path.write_bytes(AbortedTxn(7, 6, 7, 8).encode())


def break_the_txn_index(sample: Sample) -> None:
    sample.file(f"{FIRST}.txnindex").write_bytes(AbortedTxn(7, 3, 5, 6).encode() + b"\x00")


def rot_the_snapshot(sample: Sample) -> None:
    path = sample.file(f"{SECOND}.snapshot")
    overwrite(path, len(path.read_bytes()) - 1, b"\x11")


def forget_an_epoch(sample: Sample) -> None:
    sample.file("leader-epoch-checkpoint").write_bytes(encode_epochs([EpochStart(0, 0)]))


def begin_an_epoch_late(sample: Sample) -> None:
    sample.file("leader-epoch-checkpoint").write_bytes(encode_epochs([EpochStart(0, 0), EpochStart(1, 7)]))


def garble_the_epochs(sample: Sample) -> None:
    sample.file("leader-epoch-checkpoint").write_text("0\n2\n0 0\n")


@pytest.mark.parametrize(
    ("plant", "file", "what"),
    [
        (flip_a_bit, f"{FIRST}.log", "carries CRC"),
        (tear_the_end, f"{SECOND}.log", "are left"),
        (add_a_stump, f"{SECOND}.log", "too few for a batch"),
        (repeat_an_offset, f"{FIRST}.log", "offset 4 came before"),
        (begin_before_the_segment, f"{SECOND}.log", "offset 5, but"),
        (fall_in_epoch, f"{FIRST}.log", "leader epoch 0 follows epoch 3"),
        (claim_a_record_more, f"{FIRST}.log", ""),
        (claim_a_later_time, f"{SECOND}.log", "its latest time is"),
        (point_between_batches, f"{FIRST}.index", "where no batch begins"),
        (point_at_another_batch, f"{FIRST}.index", "the batch there ends at 4"),
        (fall_in_the_index, f"{FIRST}.index", "entries must rise"),
        (point_past_the_end, f"{FIRST}.index", "past the end"),
        (cut_the_index, f"{FIRST}.index", "no multiple of 8"),
        (tell_a_wrong_time, f"{FIRST}.timeindex", "the latest time of the batch there"),
        (hide_a_later_time, f"{SECOND}.timeindex", "came before"),
        (forget_the_aborted, f"{FIRST}.txnindex", "no entry says so"),
        (accuse_another_producer, f"{FIRST}.txnindex", "is a ABORT of producer 7"),
        (abort_from_elsewhere, f"{FIRST}.txnindex", "it began at offset 3"),
        (abort_without_a_marker, f"{SECOND}.txnindex", "no marker is at offset 7"),
        (break_the_txn_index, f"{FIRST}.txnindex", "no multiple of 34"),
        (rot_the_snapshot, f"{SECOND}.snapshot", "CRC"),
        (forget_an_epoch, "leader-epoch-checkpoint", "epoch 1 begins at offset 6"),
        (begin_an_epoch_late, "leader-epoch-checkpoint", "said to begin at offset 7"),
        (garble_the_epochs, "leader-epoch-checkpoint", "entries announced"),
    ],
)
def test_fault_is_found_and_named(
    sample: Sample, capsys: pytest.CaptureFixture[str], plant: Callable[[Sample], None], file: str, what: str
) -> None:
    plant(sample)
    _, found = findings(capsys, sample.path)
    problems = [one for one in found if one["type"] == "problem"]
    assert any(one["file"] == file and what in str(one["what"]) for one in problems), problems
    assert all(one["advice"] for one in problems)


def test_first_batches_of_an_aborted_transaction_may_be_gone(
    sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compaction removes aborted records; the entry still tells where they began."""
    sample.file(f"{FIRST}.txnindex").write_bytes(AbortedTxn(7, 2, 5, 6).encode())
    assert findings(capsys, sample.path) == (0, [])


def test_damage_is_located(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    flip_a_bit(sample)
    _, [problem, *_] = findings(capsys, sample.path)
    assert problem["position"] == sample.positions[1]


def test_wrong_index_is_called_wrong_a_few_times_only(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    """An index of a million wrong entries must not print a million lines."""
    entries = b"".join(OFFSET_ENTRY.pack(n + 1, n + 1) for n in range(200))
    sample.file(f"{FIRST}.index").write_bytes(entries)
    _, found = findings(capsys, sample.path)
    assert 0 < len(found) <= 5


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (f"{FIRST}.log.deleted", "about to be removed"),
        (f"{FIRST}.log.cleaned", "did not end"),
        (f"{FIRST}.log.swap", "on its way"),
        ("notes.txt", "not a file of a log"),
        ("00000000000000000099.index", "without its log"),
    ],
)
def test_loose_end_is_noted_and_fails_nothing(
    sample: Sample, capsys: pytest.CaptureFixture[str], name: str, what: str
) -> None:
    sample.file(name).touch()
    code, found = findings(capsys, sample.path)
    assert code == 0
    assert [one["type"] for one in found if what in str(one["what"])] == ["note"]


def test_missing_index_is_noted(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    sample.file(f"{FIRST}.timeindex").unlink()
    code, [note] = findings(capsys, sample.path)
    assert (code, note["what"]) == (0, "has no time index")


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex"])
def test_single_file_is_checked_against_its_log(sample: Sample, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    path = sample.file(f"{FIRST}.{kind}")
    assert findings(capsys, path) == (0, [])
    point_at_another_batch(sample)
    tell_a_wrong_time(sample)
    accuse_another_producer(sample)
    code, _ = findings(capsys, path)
    assert code == 1


def test_index_without_its_log_is_checked_for_itself(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = tmp_path / f"{FIRST}.index"
    shutil.copy(sample.file(f"{FIRST}.index"), alone)
    assert findings(capsys, alone) == (0, [])
    alone.write_bytes(alone.read_bytes() + b"\x00")
    assert findings(capsys, alone)[0] == 1


@pytest.mark.parametrize("name", [f"{SECOND}.snapshot", "leader-epoch-checkpoint", "partition.metadata"])
def test_small_files_are_checked(sample: Sample, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert findings(capsys, sample.file(name)) == (0, [])
    sample.file(name).write_bytes(b"garbage")
    assert findings(capsys, sample.file(name))[0] == 1


def test_transaction_that_began_before_the_first_segment_is_known_from_the_snapshot(
    sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    """Retention removes whole segments, also under a transaction that is still open."""
    from ottla.core.log.producers import Producer
    from ottla.core.log.snapshots import encode_snapshot
    from ottla.kernel import ControlType, build_end_txn_marker

    for name in ("log", "index", "timeindex", "txnindex"):
        sample.file(f"{FIRST}.{name}").unlink()
    sample.file("leader-epoch-checkpoint").write_bytes(encode_epochs([EpochStart(1, 6)]))
    sample.file(f"{SECOND}.snapshot").write_bytes(encode_snapshot([Producer(7, 1, 4, START, txn_first_offset=3)]))
    marker = build_end_txn_marker(
        ControlType.ABORT, 4, timestamp=START + 8, producer_id=7, producer_epoch=1, base_offset=8, leader_epoch=1
    )
    log = sample.file(f"{SECOND}.log")
    log.write_bytes(log.read_bytes() + marker)
    _, [problem] = findings(capsys, sample.path)
    assert "aborted offsets 3 to 8" in str(problem["what"])
    sample.file(f"{SECOND}.txnindex").write_bytes(AbortedTxn(7, 3, 8, 9).encode())
    assert findings(capsys, sample.path) == (0, [])


def test_people_read_what_is_wrong_and_what_to_do(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    tear_the_end(sample)
    assert main(["log", "verify", str(sample.path)]) == 1
    told = capsys.readouterr().out
    assert f"problem  {SECOND}.log at position 0" in told
    assert "cuts the log here" in told
    assert "t-0: 1 problem" in told


def test_a_segment_summary_is_known_and_its_checksums_are_checked(
    sample: Sample, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sample.path / SEGMENT_SUMMARY
    path.write_bytes(encode_summary(8, 0, [SummaryEntry(0, START, 1_000, START, -1)]))
    assert findings(capsys, sample.path) == (0, [])
    overwrite(path, path.stat().st_size - 5, b"\x55")
    code, [problem] = findings(capsys, sample.path)
    assert code == 1
    assert (problem["file"], problem["what"]) == (SEGMENT_SUMMARY, "the CRC32C of a block is wrong")
