"""Tables made of topics: an epoch that is done again sees what it saw, and nothing is read twice."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest

from ottla.client.core.names import TopicPartition
from ottla.pipelines.source.ranges import LogBounds, LogsByPartition
from ottla.pipelines.source.read_options import from_options
from ottla.pipelines.source.table_pins import TablePart, TablePins
from ottla.pipelines.source.table_snapshots import latest_of_each_key, read_part
from ottla.pipelines.source.topic_fetcher import SCHEMA

ZERO, ONE = TopicPartition("names", 0), TopicPartition("names", 1)
ID, OTHER_ID = b"i" * 16, b"o" * 16
NOBODY = from_options({"bootstrap": "127.0.0.1:1", "topics": "names"})
"""A cluster that does not answer: who needs no record of it does not notice."""


def never() -> LogsByPartition:
    raise AssertionError("the cluster is not asked again")


def records(*rows: tuple[int, str, str | None]) -> pa.Table:
    """Offset, key and value."""
    made = [
        {
            "_key": key.encode(),
            "_value": value and value.encode(),
            "_topic": "names",
            "_partition": 0,
            "_offset": offset,
        }
        for offset, key, value in rows
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def held(table: pa.Table) -> dict[bytes, bytes]:
    return {row["_key"]: row["_value"] for row in table.to_pylist()}


@pytest.fixture
def pins(tmp_path: Path) -> TablePins:
    return TablePins(str(tmp_path / "names"))


def test_epoch_that_is_done_again_has_the_pins_it_had(pins: TablePins) -> None:
    """Its rows decide which task writes what; those of another table would be looked for in tasks that skip them."""
    first = pins.parts(7, lambda: {ZERO: LogBounds(2, 10, ID), ONE: LogBounds(0, 3, ID)})
    assert [(part.wanted.partition, part.wanted.start, part.wanted.end) for part in first] == [
        (ZERO, 2, 10),
        (ONE, 0, 3),
    ]
    assert pins.parts(7, never) == first


def test_snapshot_is_made_of_the_one_before_and_the_records_since(pins: TablePins) -> None:
    (first,) = pins.parts(0, lambda: {ZERO: LogBounds(0, 10, ID)})
    assert (first.base, first.base_end) == ("", 0)
    (second,) = pins.parts(1, lambda: {ZERO: LogBounds(0, 12, ID)})
    assert (second.base, second.base_end) == (first.snapshot, 10)
    (third,) = pins.parts(2, lambda: {ZERO: LogBounds(0, 12, ID)})
    assert third.snapshot == second.snapshot


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (LogBounds(0, 12, OTHER_ID), "another topic of the same name"),
        (LogBounds(0, 9, ID), "the log lost its end"),
    ],
)
def test_snapshot_of_another_history_is_no_base(pins: TablePins, log: LogBounds, why: str) -> None:
    pins.parts(0, lambda: {ZERO: LogBounds(0, 10, ID)})
    (part,) = pins.parts(1, lambda: {ZERO: log})
    assert part.base == "", why


def test_files_of_two_epochs_are_kept(pins: TablePins, tmp_path: Path) -> None:
    for epoch in range(4):
        for part in pins.parts(epoch, lambda end=epoch + 1: {ZERO: LogBounds(0, end, ID)}):  # type: ignore[misc]
            Path(part.snapshot).touch()
    names = sorted(os.listdir(tmp_path / "names"))
    assert [name for name in names if name.endswith(".json")] == ["2.json", "3.json"]
    assert [name.rpartition("-")[2] for name in names if name.endswith(".arrow")] == ["3.arrow", "4.arrow"]


def test_latest_record_of_each_key_counts() -> None:
    """A key that was deleted is not there, nor one that retention took."""
    table = records((3, "old", "x"), (5, "be", "Bern"), (6, "ch", "Chur"), (7, "be", "Berne"), (9, "ch", None))
    assert held(latest_of_each_key(table, 4)) == {b"be": b"Berne"}
    assert latest_of_each_key(records(), 0).num_rows == 0


def test_table_that_has_not_changed_is_read_from_its_snapshot(pins: TablePins) -> None:
    (first,) = pins.parts(0, lambda: {ZERO: LogBounds(0, 2, ID)})
    kept = records((0, "be", "Berne"), (1, "ch", "Chur"))
    with pa.OSFile(first.snapshot, "wb") as file, pyarrow.ipc.new_file(file, SCHEMA) as writer:
        writer.write_table(kept)

    def read(part: TablePart) -> dict[bytes, bytes]:
        return held(pa.Table.from_batches(read_part(NOBODY, part), SCHEMA))

    (again,) = pins.parts(1, lambda: {ZERO: LogBounds(0, 2, ID)})
    assert read(again) == {b"be": b"Berne", b"ch": b"Chur"}
    (cut,) = pins.parts(2, lambda: {ZERO: LogBounds(1, 2, ID)})  # Retention took the first, and nothing came.
    assert read(cut) == {b"ch": b"Chur"}
