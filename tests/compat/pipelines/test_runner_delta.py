"""Delta tables by a driver that fetches what Delta needs: epochs that are done again are there once."""

from collections import Counter
from pathlib import Path

from delta_tables import rows_in
from runner_files import Driver, pipeline_in, write_lines

from ottla.pipelines.run.checkpoint import Checkpoint

PIPELINE = """
name = "delta"
[source.orders]
files = "in"
parse = "json"
schema = "id BIGINT, city STRING, n BIGINT"
[sink.all]
delta = "all"
[sink.latest]
delta = "latest"
upsert = "city"
"""


def table(path: Path) -> Counter[tuple[int, str, int]]:
    return Counter((row["id"], row["city"], row["n"]) for row in rows_in(path))


def run(home: Path) -> None:
    driver = Driver(home)
    if driver.wait() != 0:
        driver.fail()


def test_epoch_that_is_done_again_is_there_once(tmp_path: Path) -> None:
    pipeline_in(tmp_path, PIPELINE)
    write_lines(tmp_path / "in" / "1.json", [{"id": 1, "city": "be", "n": 1}, {"id": 2, "city": "ch", "n": 1}])
    run(tmp_path)
    for sink in ("all", "latest"):
        commits = tmp_path / "checkpoints" / "delta" / sink / "commits"
        for name in ("0", ".0.crc"):  # As if the driver had died before the end of the epoch.
            (commits / name).unlink()
    write_lines(tmp_path / "in" / "2.json", [{"id": 3, "city": "be", "n": 2}])
    run(tmp_path)
    status = Checkpoint(str(tmp_path / "checkpoints" / "delta")).status()
    assert status is not None
    assert {name: (sink.epochs_skipped, sink.rows_written) for name, sink in status.sinks.items()} == {
        "all": (1, 1),
        "latest": (1, 1),
    }
    assert table(tmp_path / "all") == {(1, "be", 1): 1, (2, "ch", 1): 1, (3, "be", 2): 1}
    assert table(tmp_path / "latest") == {(2, "ch", 1): 1, (3, "be", 2): 1}
