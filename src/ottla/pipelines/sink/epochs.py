"""Decides whether a task of a topic sink writes or skips an epoch, by the marker it finds. This makes it exactly-once.

Rule 1: a task's marker counts the epochs it has written. It is an offset of the task's group, committed in the
        transaction that writes the rows, so rows and marker become visible together or not at all.
Rule 2: if the marker equals the epoch, the epoch has to be written. If it is one more, an earlier attempt wrote the
        epoch, and it is skipped. A task without a marker begins at epoch 0.
Rule 3: any other marker belongs to another history: an older checkpoint, a lost one, or offsets that expired. It is
        refused, because rows would be lost or doubled unnoticed.
Rule 4: the marker also holds the run that wrote it, by a name that sorts by the run's start, and that run's checkpoint.
        A run that finds the marker of a later run stops. Epochs of different checkpoints are not compared.
"""

import json
from dataclasses import dataclass
from enum import Enum


class WriteError(Exception):
    """A task did not write its epoch. The text is for the person who runs the pipeline."""


class WriterFenced(WriteError):
    """Another run or attempt has taken over the task, and this one must stop."""


class EpochRefused(WriteError):
    """The epoch does not follow the last one written, by the marker. A person has to decide what is right."""


class WriteFailed(WriteError):
    """The epoch was not written, or the outcome is not known. The task may be repeated: the marker decides."""


class EpochAction(Enum):
    WRITE = "write"
    SKIP = "skip"


@dataclass(frozen=True)
class SinkTask:
    """A task of a topic sink, with its run and checkpoint. Empty names are not compared."""

    pipeline: str
    sink: str
    task: int
    group_id: str
    run: str = ""
    checkpoint: str = ""

    def __str__(self) -> str:
        return f"pipeline {self.pipeline}, sink {self.sink}, task {self.task}"


@dataclass(frozen=True)
class EpochMarker:
    epochs: int
    """How many epochs were written, which is the number of the next one."""
    run: str = ""
    checkpoint: str = ""

    @classmethod
    def read(cls, offset: int, metadata: str) -> "EpochMarker":
        """A committed offset as a marker. Metadata in another format is ignored."""
        try:
            told = json.loads(metadata) if metadata else {}
        except ValueError:
            told = {}
        told = told if isinstance(told, dict) else {}
        return cls(offset, str(told.get("run", "")), str(told.get("checkpoint", "")))

    @property
    def metadata(self) -> str:
        told = {"run": self.run, "checkpoint": self.checkpoint}
        return json.dumps({name: value for name, value in told.items() if value}, separators=(",", ":"))


def marker_after(writer: SinkTask, epoch: int) -> EpochMarker:
    """The marker that is committed with the rows of `epoch`."""
    return EpochMarker(epoch + 1, writer.run, writer.checkpoint)


def step_for(writer: SinkTask, epoch: int, found: EpochMarker | None) -> EpochAction:
    """Whether to write or skip `epoch`. Raises WriterFenced or EpochRefused."""
    if epoch < 0:
        raise EpochRefused(f"{writer}: epoch {epoch} is negative; epochs are counted from 0")
    if found is None:
        if epoch == 0:
            return EpochAction.WRITE
        raise EpochRefused(
            f"{writer}: epoch {epoch} is to be written, but the group {writer.group_id} has no committed offset that "
            f"says that epoch {epoch - 1} was. Either the offsets expired (offsets.retention.minutes) or were deleted, "
            "or the sink's topic was deleted, or the sink wrote at-least-once before. Whether epoch "
            f"{epoch} is in the topic already is not known: look there, and then start over with a new checkpoint and "
            f"a new name, or commit {epoch} (not written) or {epoch + 1} (written) as the group's offset"
        )
    check_run(writer, found)
    if writer.checkpoint and found.checkpoint and found.checkpoint != writer.checkpoint:
        raise EpochRefused(
            f"{writer}: the epochs up to {found.epochs - 1} were written by a run with another checkpoint "
            f"({found.checkpoint}, this one is {writer.checkpoint}). Run with that checkpoint, or start over: choose "
            f"another name for the pipeline, or delete the group {writer.group_id}"
        )
    if found.epochs == epoch:
        return EpochAction.WRITE
    if found.epochs == epoch + 1:
        return EpochAction.SKIP
    place = "behind" if found.epochs > epoch else "ahead of"
    raise EpochRefused(
        f"{writer}: epoch {epoch} is to be written, but the topic holds the epochs up to {found.epochs - 1}: the "
        f"checkpoint is {place} the topic. Run with the checkpoint that wrote them, or start over: choose another name "
        f"for the pipeline, or delete the group {writer.group_id}"
    )


def check_run(writer: SinkTask, found: EpochMarker | None) -> None:
    """Raises WriterFenced if a run that began later has taken over the task."""
    if writer.run and found is not None and found.run > writer.run:
        raise fenced(writer, f"run {found.run} began later than this one, {writer.run}")


def fenced(writer: SinkTask, why: str) -> WriterFenced:
    return WriterFenced(
        f"{writer}: another run of the pipeline, or a later attempt of this task, took over; this one stops, "
        f"and what it had not committed is discarded ({why})"
    )
