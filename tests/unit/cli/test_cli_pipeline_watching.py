"""`ottla pipeline status`, `list` and `stop`, by what a run wrote down."""

import io
import json
import os
import platform
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ottla.cli import main
from ottla.cli.pipeline.display import rendered
from ottla.pipelines.run.checkpoint import Checkpoint, RunStatus, SinkStatus
from ottla.pipelines.run.process import process_started

SINK = SinkStatus(
    epoch=12,
    records_read=2_000,
    records_per_second=150.4,
    rows_written=40,
    dead_letters=3,
    late_rows=2,
    batch_ms=[90, 110],
)


@pytest.fixture
def told() -> RunStatus:
    """Of this very process, which runs."""
    return RunStatus(
        pipeline="shop",
        run="1",
        hash="abc",
        state="running",
        pid=os.getpid(),
        pid_started=process_started(os.getpid()) or 0.0,
        host=platform.node(),
        started_ms=0,
        lag_records=1_234,
        lag_ms=65_000,
        sinks={"out": SINK},
    )


def tell(directory: Path, told: RunStatus) -> None:
    checkpoint = Checkpoint(str(directory))
    checkpoint.own(told.run)
    checkpoint.tell(told)


def test_status_in_lines(told: RunStatus, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell(tmp_path, told)
    assert main(["pipeline", "status", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "shop: running, 1,234 records (1m 5s) behind",
        "  out: epoch 12 (0.1s), 2,000 records read (150/s), 40 rows written, 3 dead letters, 2 rows dropped as late",
    ]


def test_status_on_a_terminal(told: RunStatus) -> None:
    """Everything at a glance: rate, lag in records and in time, batch times, dead letters, late rows, errors."""
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(rendered(replace(told, sinks={"out": replace(SINK, restarts=1, error="the broker is gone")})))
    shown = console.export_text()
    assert "shop  running, 1,234 records (1m 5s) behind" in shown
    row = next(line.split() for line in shown.splitlines() if line.startswith("out "))
    assert row == ["out", "12", "150", "2,000", "40", "3", "2", "0.1s", "1"]
    assert "out: the broker is gone" in shown


def test_status_for_programs(told: RunStatus, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell(tmp_path, told)
    assert main(["pipeline", "status", str(tmp_path), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert (written["lag_records"], written["sinks"]["out"]["batch_ms"]) == (1_234, [90, 110])


def test_run_whose_process_is_gone_has_died(
    told: RunStatus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last words were that it runs: it had no time for others."""
    tell(tmp_path, replace(told, pid_started=told.pid_started - 1))
    assert main(["pipeline", "status", str(tmp_path)]) == 1
    assert "shop: died" in capsys.readouterr().out
    assert main(["pipeline", "stop", str(tmp_path)]) == 0
    assert "is not running: it died without a message (last epochs: out 12)" in capsys.readouterr().out


def test_failed_run_says_why(told: RunStatus, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell(tmp_path, replace(told, state="failed", reason="sink out: the table is gone"))
    assert main(["pipeline", "status", str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith("shop: failed: sink out: the table is gone\n")


def test_list_of_a_directory(
    told: RunStatus, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(tmp_path / "checkpoints" / "shop", told)
    tell(tmp_path / "checkpoints" / "other", replace(told, pipeline="other", state="finished", lag_records=None))
    (tmp_path / "checkpoints" / "stranger").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["pipeline", "list"]) == 0
    rows = [line.split()[:4] for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["Pipeline", "State", "Epoch", "Lag"],
        ["other", "finished", "12", "-"],
        ["shop", "running", "12", "1,234"],
    ]
    assert main(["pipeline", "status", "other"]) == 0


def test_run_on_another_machine_is_asked_by_a_file(
    told: RunStatus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(tmp_path, replace(told, host="elsewhere"))
    assert main(["pipeline", "stop", str(tmp_path), "--timeout", "0.01"]) == 1
    assert "was asked to stop and still runs" in capsys.readouterr().err
    assert Checkpoint(str(tmp_path)).stop_asked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status", "nothing"], "nothing is neither a pipeline's file nor a checkpoint"),
        (["run", "nothing.toml"], "nothing.toml: No such file"),
        (["replay", "p.toml", "--from", "1h", "--to", "2h"], "--from must be earlier"),
        (["replay", "p.toml", "--from", "yesterday"], "--from 'yesterday': expected a time such as"),
        (["run", "p.toml", "--conf", "spark"], "--conf 'spark': expected NAME=VALUE"),
    ],
)
def test_what_makes_no_sense_is_told_at_once(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_missing_java_is_one_sentence_with_what_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "p.toml").write_text('name = "p"\n[source.s]\ntopic = "t"\nparse = "text"\n[sink.k]\nconsole = true\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["pipeline", "run", str(tmp_path / "p.toml")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Java 17 or later" in said
    assert "install" in said
