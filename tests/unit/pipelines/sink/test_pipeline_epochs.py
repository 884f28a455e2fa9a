"""What a task does with an epoch: the decision, and that no death at any point loses or doubles rows."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipelines.sink.epochs import (
    EpochAction,
    EpochMarker,
    EpochRefused,
    SinkTask,
    WriterFenced,
    marker_after,
    step_for,
)

WRITER = SinkTask("shop", "per_minute", 3, "pipeline.shop.per_minute.3", run="0002", checkpoint="c1")


def test_a_task_without_a_marker_begins_at_epoch_0() -> None:
    assert step_for(WRITER, 0, None) is EpochAction.WRITE


def test_the_next_epoch_is_written_and_the_one_before_skipped() -> None:
    assert step_for(WRITER, 7, EpochMarker(7)) is EpochAction.WRITE
    assert step_for(WRITER, 7, EpochMarker(8)) is EpochAction.SKIP


def test_a_missing_marker_stops_the_pipeline() -> None:
    """Group offsets expire. Written again the epoch might be double, skipped it might be lost."""
    with pytest.raises(EpochRefused, match="task 3: epoch 7 is to be written, but the group") as refused:
        step_for(WRITER, 7, None)
    assert "commit 7 (not written) or 8 (written)" in str(refused.value)


@pytest.mark.parametrize(("epochs", "place"), [(9, "behind"), (6, "ahead of"), (500, "behind"), (0, "ahead of")])
def test_a_marker_of_another_history_stops_the_pipeline(epochs: int, place: str) -> None:
    """A checkpoint that was deleted counts from 0 again: every epoch up to the marker would be lost silently."""
    with pytest.raises(EpochRefused, match=f"the checkpoint is {place} the topic"):
        step_for(WRITER, 7, EpochMarker(epochs))


def test_a_later_run_fences_an_earlier_one_and_not_the_other_way() -> None:
    assert step_for(WRITER, 7, EpochMarker(7, run="0001")) is EpochAction.WRITE
    assert step_for(WRITER, 7, EpochMarker(7, run="0002")) is EpochAction.WRITE
    for epochs in (7, 8, 9):
        with pytest.raises(WriterFenced, match="another run of the pipeline"):
            step_for(WRITER, 7, EpochMarker(epochs, run="0003"))


def test_an_epoch_of_another_checkpoint_is_not_taken_for_this_one() -> None:
    """A pipeline that begins anew after one epoch would find its first one written."""
    with pytest.raises(EpochRefused, match="another checkpoint"):
        step_for(WRITER, 0, EpochMarker(1, checkpoint="c0"))
    assert step_for(WRITER, 0, EpochMarker(1, checkpoint="c1")) is EpochAction.SKIP
    assert step_for(WRITER, 0, EpochMarker(1)) is EpochAction.SKIP


@pytest.mark.parametrize("metadata", ["", "{}", "[]", "not json", '{"run": 5}', '"text"'])
def test_metadata_of_others_is_no_fault(metadata: str) -> None:
    assert EpochMarker.read(4, metadata).epochs == 4


@given(st.integers(0, 2**62), st.text(max_size=9), st.text(max_size=9))
def test_a_marker_is_read_as_it_was_written(epochs: int, run: str, checkpoint: str) -> None:
    marker = EpochMarker(epochs, run, checkpoint)
    assert EpochMarker.read(marker.epochs, marker.metadata) == marker


@dataclass
class Cluster:
    """As much of a cluster as the protocol stands on: transactions that end whole, and the newest attempt's alone."""

    rows: list[str] = field(default_factory=list)
    marker: EpochMarker | None = None
    attempt: int = 0

    def init(self) -> int:
        self.attempt += 1
        return self.attempt

    def commit(self, attempt: int, rows: list[str], marker: EpochMarker) -> bool:
        if attempt != self.attempt:
            return False
        self.rows += rows
        self.marker = marker
        return True


# When an attempt dies: before its commit, or after it and before it could tell. A zombie commits late.
deaths = st.sampled_from(["lives", "before commit", "after commit", "zombie"])


@given(st.lists(st.lists(deaths, max_size=4), min_size=1, max_size=8))
def test_every_epoch_is_written_once_whatever_dies(histories: list[list[str]]) -> None:
    """The engine repeats an epoch until an attempt says that it is done, and only then goes on."""
    cluster = Cluster()
    zombies: list[tuple[int, list[str], EpochMarker]] = []
    for epoch, attempts in enumerate(histories):
        for fate in [*attempts, "lives"]:
            attempt = cluster.init()
            for zombie in zombies:
                assert not cluster.commit(*zombie)
            if step_for(WRITER, epoch, cluster.marker) is EpochAction.SKIP:
                break
            rows, after = [f"{epoch}"], marker_after(WRITER, epoch)
            if fate == "zombie":
                zombies.append((attempt, rows, after))
            elif fate != "before commit":
                assert cluster.commit(attempt, rows, after)
            if fate == "lives":
                break
    assert cluster.rows == [f"{epoch}" for epoch in range(len(histories))]
