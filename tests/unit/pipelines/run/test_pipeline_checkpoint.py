"""Whose checkpoint it is, who may go on with it, and what it says of a run."""

import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from pipeline_text import SHOP, parsed

from ottla.observe.trace import Event, sink_installed
from ottla.pipelines import Pipeline
from ottla.pipelines.run.checkpoint import (
    OWNER_FILE,
    STATUS_FILE,
    Checkpoint,
    CheckpointRefused,
    RunFenced,
    RunStatus,
    SinkStatus,
)
from ottla.pipelines.run.process import is_running, process_started
from ottla.pipelines.spec.model import TopicSink
from ottla.pipelines.spec.paths import resolved

STATUS = RunStatus("shop", "1", "abc", "running", 7, 8.0, "host", 9, sinks={"out": SinkStatus(epoch=4, batch_ms=[5])})


@pytest.fixture
def shop() -> Pipeline:
    return parsed(SHOP)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(str(tmp_path / "checkpoint"))


@pytest.mark.parametrize("address", ["{}", "file:{}", "file://{}", "file://localhost{}"])
def test_directory_may_be_given_as_an_address(tmp_path: Path, address: str) -> None:
    there = tmp_path / "a b"
    given = address.format(str(there) if address == "{}" else quote(str(there)))
    assert Checkpoint(resolved("/elsewhere", given)).directory == str(there)


@pytest.mark.parametrize("address", ["s3a://bucket/shop", "hdfs:/shop", "file://other-machine/shop"])
def test_address_of_another_system_is_refused(address: str) -> None:
    """`status` and `stop` read the notes that are kept there, without Spark."""
    with pytest.raises(CheckpointRefused, match="must be a directory on this machine"):
        Checkpoint(resolved("/elsewhere", address))


def test_status_that_cannot_be_kept_costs_nothing_but_itself(checkpoint: Checkpoint) -> None:
    """A full disk fails epochs, which are done again; it must not end the run that would do them."""
    checkpoint.own(STATUS.run)
    (Path(checkpoint.directory) / STATUS_FILE).mkdir()  # Nothing can be renamed to that.
    events: list[Event] = []
    with sink_installed(events.append):
        checkpoint.tell(STATUS)
        checkpoint.tell(STATUS)
    assert [event.name for event in events] == ["pipeline.status_not_kept"]
    assert sorted(os.listdir(checkpoint.directory)) == [OWNER_FILE, STATUS_FILE]


def begin_epoch(checkpoint: Checkpoint, sink: str, epoch: int, *, ended: bool) -> None:
    """As Spark writes it down."""
    for log in ("offsets", *(["commits"] if ended else [])):
        directory = Path(checkpoint.sink(sink), log)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{epoch}").write_text("v1")
        (directory / f".{epoch}.crc").write_text("")


def test_what_the_first_run_settled_is_there_for_the_next(checkpoint: Checkpoint, shop: Pipeline) -> None:
    assert checkpoint.take(shop) is None
    first = checkpoint.keep(shop, {"out": 3}, {"orders": "{}"}, {"pyspark": "4.1.3"})
    again = checkpoint.take(shop)
    assert again is not None
    assert (again.checkpoint_id, again.parallelism, again.columns) == (
        first.checkpoint_id,
        {"out": 3},
        {"orders": "{}"},
    )
    assert checkpoint.keep(shop, {"out": 3}, {}, {}).checkpoint_id == first.checkpoint_id


def test_change_that_the_checkpoint_does_not_survive_is_refused(checkpoint: Checkpoint, shop: Pipeline) -> None:
    checkpoint.keep(shop, {}, {}, {})
    renamed = replace(shop, sources=tuple(replace(source, name=f"{source.name}2") for source in shop.sources))
    with pytest.raises(CheckpointRefused, match="was removed, and the checkpoint holds its position"):
        checkpoint.take(renamed)


def test_allowed_change_waits_for_the_end_of_the_epoch(checkpoint: Checkpoint, shop: Pipeline) -> None:
    """The rows of an epoch that is done again must be those that some tasks have written already."""
    checkpoint.keep(shop, {}, {}, {})
    changed = replace(shop, errors=replace(shop.errors, max_rate=0.5))
    sink = shop.sinks[0].name
    begin_epoch(checkpoint, sink, 9, ended=True)
    begin_epoch(checkpoint, sink, 10, ended=False)
    with pytest.raises(CheckpointRefused, match=f"epoch 10 of sink {sink} is unfinished"):
        checkpoint.take(changed)
    assert checkpoint.take(replace(shop, bootstrap="10.0.0.1:9092")) is not None
    # Nor do defaults of another version matter that say how rows travel.
    quicker = [replace(one, batch_bytes=99, linger_ms=9) if isinstance(one, TopicSink) else one for one in shop.sinks]
    assert quicker != list(shop.sinks)
    assert checkpoint.take(replace(shop, sinks=tuple(quicker))) is not None
    begin_epoch(checkpoint, sink, 10, ended=True)
    assert checkpoint.take(changed) is not None


def test_run_that_began_later_fences_the_other(checkpoint: Checkpoint) -> None:
    checkpoint.own("1")
    checkpoint.check_owner("1")
    checkpoint.own("2")
    checkpoint.check_owner("2")
    with pytest.raises(RunFenced, match=f"process {os.getpid()} on"):
        checkpoint.check_owner("1")


def test_request_to_stop_is_for_the_run_that_there_is(checkpoint: Checkpoint) -> None:
    """A later one would otherwise stop at once, and nobody would know why."""
    checkpoint.own("1")
    checkpoint.ask_to_stop()
    assert checkpoint.stop_asked
    checkpoint.own("2")
    assert not checkpoint.stop_asked


def test_status_comes_back_as_it_was_told(checkpoint: Checkpoint) -> None:
    checkpoint.own("1")
    told = STATUS
    checkpoint.tell(told)
    assert checkpoint.status() == told
    checkpoint.own("2")
    checkpoint.tell(replace(told, state="failed"))
    assert checkpoint.status() == told  # Whoever was fenced has no say.


def test_checkpoint_of_another_version_is_not_guessed_at(checkpoint: Checkpoint, shop: Pipeline) -> None:
    checkpoint.keep(shop, {}, {}, {})
    path = Path(checkpoint.directory, "ottla-pipeline.json")
    path.write_text(path.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(CheckpointRefused, match="another version of Ottla wrote it"):
        checkpoint.take(shop)


def test_process_is_known_by_more_than_its_number() -> None:
    started = process_started(os.getpid())
    assert started is not None
    assert is_running(os.getpid(), started)
    assert not is_running(os.getpid(), started - 1)
