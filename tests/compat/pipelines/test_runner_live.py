"""A pipeline that runs until somebody stops it, and two of them on one checkpoint."""

import json
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
from nodes.ottla_node import wait_until
from runner_files import OTTLA, Driver, pipeline_in, write_lines

PIPELINE = """
name = "live"
[source.orders]
files = "in"
parse = "json"
schema = "id BIGINT"
[sink.out]
parquet = "out"
"""


def pipeline(home: Path, command: str, *options: str) -> "subprocess.CompletedProcess[str]":
    given = [str(OTTLA), "pipeline", command, "pipeline.toml", *options]
    return subprocess.run(given, cwd=home, capture_output=True, text=True, check=False)


def written(home: Path) -> list[int]:
    files = (home / "out").glob("*.parquet")
    return sorted(one for file in files for one in pq.read_table(file).column("id").to_pylist())


def test_later_run_takes_over_and_is_stopped(tmp_path: Path) -> None:
    pipeline_in(tmp_path, PIPELINE)
    write_lines(tmp_path / "in" / "1.json", [{"id": 1}])
    older = Driver(tmp_path, once=False, log="older.log")
    later = None
    try:
        wait_until(lambda: written(tmp_path) == [1], "the first run writes", 120)
        told = json.loads(pipeline(tmp_path, "status", "--json").stdout)
        assert told["state"] == "running"
        later = Driver(tmp_path, once=False, log="later.log")
        run = told["run"]
        wait_until(
            lambda: json.loads(pipeline(tmp_path, "status", "--json").stdout)["run"] != run, "the other begins", 120
        )
        write_lines(tmp_path / "in" / "2.json", [{"id": 2}])
        assert older.wait() == 1
        assert "another run of the pipeline took over" in older.log()
        wait_until(lambda: written(tmp_path) == [1, 2], "the later run writes", 120)

        stopped = pipeline(tmp_path, "stop")
        assert (stopped.returncode, stopped.stdout) == (0, "live has stopped (last epochs: out 1)\n"), stopped
        assert later.wait() == 0
    finally:
        for driver in (older, later):
            if driver is not None and driver.running:
                driver.kill()
    assert "live: stopped" in later.log()
    again = pipeline(tmp_path, "stop")
    assert again.stdout == "live is not running: it has stopped (last epochs: out 1)\n"
