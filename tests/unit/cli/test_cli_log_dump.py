"""`ottla log dump` shows what the files hold, to people and to programs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_partition import FIRST, SECOND, START, Sample, write_sample

from ottla import __version__
from ottla.cli import main
from ottla.cli.log.tables import shown_bytes, shown_time
from ottla.core.log.files import SEGMENT_SUMMARY
from ottla.core.log.summary import SummaryEntry, encode_summary
from ottla.kernel import Record, build_batch
from ottla.wire.codec import encode
from ottla.wire.records.groups import OffsetCommitKey, OffsetCommitValue
from ottla.wire.records.metadata import FeatureLevelRecord


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return write_sample(tmp_path / "t-0")


def dumped(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert main(["log", "dump", "--json", *map(str, arguments)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def of_type(items: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in items if item["type"] == kind]


def test_directory_as_json(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    items = dumped(capsys, sample.path)
    assert items[0] == {"type": "partition", "file": "t-0", "topic": "t", "partition": 0, "fate": None}
    assert [(epoch["epoch"], epoch["start_offset"]) for epoch in of_type(items, "leader_epoch")] == [(0, 0), (1, 6)]
    assert [producer["producer_id"] for producer in of_type(items, "producer")] == [7]
    assert [segment["base_offset"] for segment in of_type(items, "segment")] == [0, 6]
    assert [(b["base_offset"], b["last_offset"], b["records"]) for b in of_type(items, "batch")] == [
        (0, 2, 3),
        (3, 4, 2),
        (5, 5, 1),
        (6, 7, 2),
    ]
    aborted, marker = of_type(items, "batch")[1:3]
    assert (aborted["codec"], aborted["transactional"], aborted["last_sequence"]) == ("zstd", True, 1)
    assert (marker["control"], marker["crc_valid"]) == ("ABORT", True)
    assert of_type(items, "record") == []


def test_records_as_json(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    """Text is text; what is no text is marked as base64; null is null."""
    records = of_type(dumped(capsys, sample.path, "--records"), "record")
    assert [record["offset"] for record in records] == list(range(8))
    first = {"offset": 0, "timestamp": START, "key": "key-0", "value": "value-0"}
    assert first.items() <= records[0].items()
    assert records[0]["headers"] == [["trace", {"base64": "/wA="}], ["none", None]]
    assert (records[6]["key"], records[6]["value"]) == (None, {"base64": "/v8="})
    assert (records[7]["key"], records[7]["value"]) == ("k", None)


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        (["--from", 4], [4, 5, 6, 7]),
        (["--to", 3], [0, 1, 2, 3]),
        (["--from", 2, "--to", 6], [2, 3, 4, 5, 6]),
        (["--max", 2], [0, 1]),
        (["--from", 4, "--max", 3], [4, 5, 6]),
        (["--from", 99], []),
    ],
)
def test_part_of_a_log(
    sample: Sample, capsys: pytest.CaptureFixture[str], arguments: list[object], offsets: list[int]
) -> None:
    records = of_type(dumped(capsys, sample.path, "--records", *arguments), "record")
    assert [record["offset"] for record in records] == offsets


def test_limit_counts_batches_without_records(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(of_type(dumped(capsys, sample.path, "--max", 3), "batch")) == 3


@pytest.mark.parametrize(
    ("name", "kind", "count"),
    [
        (f"{FIRST}.log", "batch", 3),
        (f"{FIRST}.index", "offset_entry", 2),
        (f"{FIRST}.timeindex", "time_entry", 2),
        (f"{FIRST}.txnindex", "aborted_transaction", 1),
        (f"{SECOND}.snapshot", "producer", 1),
        ("leader-epoch-checkpoint", "leader_epoch", 2),
        ("partition.metadata", "metadata", 1),
    ],
)
def test_single_file(sample: Sample, capsys: pytest.CaptureFixture[str], name: str, kind: str, count: int) -> None:
    items = dumped(capsys, sample.file(name))
    assert [item["type"] for item in items] == [kind] * count
    main(["log", "dump", str(sample.file(name))])
    assert capsys.readouterr().out


def test_reserved_space_of_an_index_is_not_shown(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka reserves the active segment's indexes; after a crash the rest is zeros."""
    assert dumped(capsys, sample.file(f"{SECOND}.index")) == []
    path = sample.file(f"{FIRST}.index")
    path.write_bytes(path.read_bytes() + bytes(800))
    assert len(dumped(capsys, path)) == 2


def test_indexes_of_a_directory_on_request(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    assert of_type(dumped(capsys, sample.path), "offset_entry") == []
    assert of_type(dumped(capsys, sample.path, "--indexes"), "offset_entry")[0]["offset"] == 4


def test_checkpoint_of_a_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text("0\n1\nt 3 44\n")
    fields = {"topic": "t", "partition": 3, "offset": 44}
    assert dumped(capsys, path) == [{"type": "checkpoint", "file": path.name, **fields}]


def test_damage_ends_the_dump_with_1(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample.file(f"{SECOND}.log")
    path.write_bytes(path.read_bytes() + b"torn")
    assert main(["log", "dump", str(sample.path)]) == 1
    assert "too few for a batch" in " ".join(capsys.readouterr().out.split())


def test_broken_segment_does_not_hide_the_others(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    sample.file(f"{FIRST}.log").write_bytes(b"\xee" * 500)
    assert main(["log", "dump", str(sample.path), "--json"]) == 1
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["file"] for item in of_type(items, "damage")] == [f"{FIRST}.log"]
    assert [item["file"] for item in of_type(items, "batch")] == [f"{SECOND}.log"]


def test_wrong_checksum_is_shown(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample.file(f"{FIRST}.log")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    main(["log", "dump", str(sample.path)])
    assert "WRONG CRC" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_tables_fit_the_terminal(
    sample: Sample, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    main(["log", "dump", str(sample.path), "--records", "--indexes"])
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= columns
    for fragment in ("key-0", "value-4", "header trace=0xff00", "0xfeff", "null", "Aborted transactions"):
        assert fragment in told


def test_long_tables_have_one_head_and_even_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table is printed a page at a time; nobody should see the seams."""
    path = tmp_path / f"{FIRST}.log"
    batches = (build_batch([Record(offset, START, None, b"v")]) for offset in range(1_000, 1_450))
    path.write_bytes(b"".join(batches))
    main(["log", "dump", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert sum("Offsets" in line for line in lines) == 1
    rows = [line for line in lines if line.lstrip().startswith("1")]
    assert len(rows) == 450
    assert len({line.index("2023-") for line in rows}) == 1


def test_records_of_internal_topics_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = b"\x00\x01" + encode(OffsetCommitKey(group="g", topic="t", partition=3), 0)
    value = OffsetCommitValue(offset=42, leader_epoch=1, metadata="", commit_timestamp=0, expire_timestamp=-1)
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir()
    records = [
        Record(0, START, key, b"\x00\x03" + encode(value, 3)),
        Record(1, START, key, None),
        Record(2, START, b"\x7f\x7f?", b"unknown"),
    ]
    (directory / f"{FIRST}.log").write_bytes(build_batch(records))
    committed, deleted, unknown = of_type(dumped(capsys, directory, "--records"), "record")
    assert committed["decoded"]["key"] == {"record": "OffsetCommit", "group": "g", "topic": "t", "partition": 3}
    assert committed["decoded"]["value"]["offset"] == 42
    assert deleted["decoded"]["value"] is None
    assert "decoded" not in unknown
    main(["log", "dump", str(directory), "--records"])
    told = " ".join(capsys.readouterr().out.split())
    assert "OffsetCommit group=g topic=t partition=3 = offset=42" in told
    assert "OffsetCommit group=g topic=t partition=3 = deleted" in told


def test_records_of_the_metadata_log_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    value = b"\x01\x0c\x00" + encode(FeatureLevelRecord(name="metadata.version", feature_level=30), 0)
    (directory / f"{FIRST}.log").write_bytes(build_batch([Record(0, START, None, value)]))
    [record] = of_type(dumped(capsys, directory, "--records"), "record")
    assert record["decoded"]["value"] == {"record": "FeatureLevel", "name": "metadata.version", "feature_level": 30}


def test_values_for_people() -> None:
    assert shown_bytes(b"caf\xc3\xa9") == "café"
    assert shown_bytes(b"") == ""
    assert shown_bytes(b"a\nb") == "0x610a62"
    assert shown_bytes(None) == "null"
    assert shown_bytes(b"\xff" * 100) == "0x" + "ff" * 32 + "… (100 bytes)"
    assert shown_bytes(b"x" * 5_000).endswith("… (5,000 bytes)")
    assert shown_time(1_700_000_000_123, wide=True) == "2023-11-14 22:13:20.123"
    assert shown_time(-1, wide=True) == "none"
    assert shown_time(2**63 - 1, wide=True) == str(2**63 - 1)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nothing-0", "no such file or directory"),
        ("empty-0", "no log here"),
        ("data", "Choose one of its partitions: t-0, for example"),
        ("lib", "no log here"),
        ("notes.txt", "not a file of a log"),
        (f"{FIRST}.log", "does not begin with a record batch"),
    ],
)
def test_wrong_path_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, told: str) -> None:
    (tmp_path / "empty-0").mkdir()
    for directory in ("data/t-0", "data/llvm-14", "lib/llvm-14"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "data" / "t-0" / f"{FIRST}.log").touch()
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / f"{FIRST}.log").write_text("this is a text file and no log of Kafka's, long enough for a header or two")
    assert main(["log", "dump", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("ottla: ")
    assert told in error


def test_unreadable_file_is_explained(
    sample: Sample, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, *_: object) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.open", refuse)
    assert main(["log", "verify", str(sample.path)]) == 2
    assert "no permission to read it" in capsys.readouterr().err


def test_version_and_help_do_not_wait_for_the_rest() -> None:
    """The tables' library alone takes longer to load than Python itself."""
    code = "import sys, ottla.cli as c\ntry: c.main(['--version'])\nexcept SystemExit: print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    version, runs = done.stdout.splitlines()
    assert (version.split()[:2], runs) == (["ottla", __version__], "False")


def test_reader_that_goes_away_is_no_error(sample: Sample) -> None:
    """`ottla log dump ... | head` must end in silence."""
    command = f"{sys.executable} -c 'from ottla.cli import main; main()' log dump {sample.path} --json --records"
    done = subprocess.run(["sh", "-c", f"{command} | true"], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_segment_summary(sample: Sample, capsys: pytest.CaptureFixture[str]) -> None:
    path = sample.path / SEGMENT_SUMMARY
    path.write_bytes(encode_summary(8, 1, [SummaryEntry(0, START, 1_000, START, -1), SummaryEntry(6, START, 9, -1, 7)]))
    header, first, second = dumped(capsys, path)
    assert (header["end_offset"], header["leader_epoch"]) == (8, 1)
    assert (first["base_offset"], first["size"], first["txn_checksum"]) == (0, 1_000, None)
    assert (second["max_timestamp"], second["running_max"], second["txn_checksum"]) == (-1, START, 7)
    assert main(["log", "dump", str(path)]) == 0
    assert "00000007" in capsys.readouterr().out
