"""What a task does with an epoch, by the marker it finds: the decision that makes a sink exactly-once.

Rule 1: a task's marker counts the epochs it has written: an offset of its group, committed in the transaction that
        writes an epoch's rows. So rows and marker are visible together or not at all.
Rule 2: the marker equals the epoch: the epoch is written. It is one more: the epoch was written by an attempt before,
        and is skipped. A task without a marker begins at epoch 0.
Rule 3: any other marker belongs to another history (an older checkpoint, a lost one, offsets that expired). Whatever
        were written then would be missing or double, and nobody would know: it is refused.
Rule 4: the marker also says which run wrote it, by a name that sorts by the time the run began, and which checkpoint
        the run went by. A run that finds a later one stops; an epoch of another checkpoint is no epoch of this one.
"""

import json
from dataclasses import dataclass
from enum import Enum


class WriteError(Exception):
    """Why a task did not write its epoch, for the person who runs the pipeline."""


class WriterFenced(WriteError):
    """Another run, or another attempt, has taken the task over: this one must not go on."""


class EpochRefused(WriteError):
    """The epoch does not follow what the marker says was written. Only a person can tell what is right."""


class WriteFailed(WriteError):
    """The epoch is not written, or nobody knows whether it is. The same task may be tried again: the marker tells."""


class Step(Enum):
    WRITE = "write"
    SKIP = "skip"


@dataclass(frozen=True)
class Writer:
    """A task of a sink, and on whose behalf it runs; names left empty are not compared."""

    pipeline: str
    sink: str
    task: int
    group_id: str
    run: str = ""
    checkpoint: str = ""

    def __str__(self) -> str:
        return f"pipeline {self.pipeline}, sink {self.sink}, task {self.task}"


@dataclass(frozen=True)
class Marker:
    epochs: int
    """How many were written: the next epoch's number."""
    run: str = ""
    checkpoint: str = ""

    @classmethod
    def read(cls, offset: int, metadata: str) -> "Marker":
        """A committed offset as a marker. Metadata that is none of ours says nothing."""
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


def marker_after(writer: Writer, epoch: int) -> Marker:
    """What is committed with the rows of `epoch`."""
    return Marker(epoch + 1, writer.run, writer.checkpoint)


def step_for(writer: Writer, epoch: int, found: Marker | None) -> Step:
    """What to do with `epoch`. Raises WriterFenced or EpochRefused."""
    if epoch < 0:
        raise EpochRefused(f"{writer}: epoch {epoch} is negative; epochs are counted from 0")
    if found is None:
        if epoch == 0:
            return Step.WRITE
        raise EpochRefused(
            f"{writer}: epoch {epoch} is to be written, but the group {writer.group_id} has no committed offset that "
            f"says that epoch {epoch - 1} was. Either the offsets expired (offsets.retention.minutes) or were deleted, "
            "or the sink's topic was deleted, or the sink wrote at-least-once before. Whether epoch "
            f"{epoch} is in the topic already cannot be told: look there, and then begin with a new checkpoint and a "
            f"new name, or commit {epoch} (not written) or {epoch + 1} (written) as the group's offset"
        )
    check_run(writer, found)
    if writer.checkpoint and found.checkpoint and found.checkpoint != writer.checkpoint:
        raise EpochRefused(
            f"{writer}: the epochs up to {found.epochs - 1} were written by a run with another checkpoint "
            f"({found.checkpoint}, this one is {writer.checkpoint}). Run with that checkpoint, or begin anew: choose "
            f"another name for the pipeline, or delete the group {writer.group_id}"
        )
    if found.epochs == epoch:
        return Step.WRITE
    if found.epochs == epoch + 1:
        return Step.SKIP
    place = "behind" if found.epochs > epoch else "ahead of"
    raise EpochRefused(
        f"{writer}: epoch {epoch} is to be written, but the topic holds the epochs up to {found.epochs - 1}: the "
        f"checkpoint is {place} the topic. Run with the checkpoint that wrote them, or begin anew: choose another name "
        f"for the pipeline, or delete the group {writer.group_id}"
    )


def check_run(writer: Writer, found: Marker | None) -> None:
    """Raises WriterFenced if a run that began later has taken the task over."""
    if writer.run and found is not None and found.run > writer.run:
        raise fenced(writer, f"run {found.run} began later than this one, {writer.run}")


def fenced(writer: Writer, why: str) -> WriterFenced:
    return WriterFenced(
        f"{writer}: another run of the pipeline, or a later attempt of this task, took over; this one stops, and "
        f"nothing that it had not committed counts ({why})"
    )
