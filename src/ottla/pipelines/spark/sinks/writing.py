"""What every sink is given and gives back."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame

from ottla.pipelines.identity import Identity
from ottla.pipelines.spec import Delivery


@dataclass(frozen=True)
class Run:
    """The run on whose behalf a sink writes."""

    identity: Identity
    name: str
    """Sorts after the names of all runs before it."""
    checkpoint_id: str
    bootstrap: str
    delivery: Delivery
    directory: str
    """Of the pipeline's file: paths count from there."""


class Outcome(NamedTuple):
    """What became of an epoch."""

    rows: int
    dead_letters: int = 0
    skipped: int = 0
    """How many parts of the epoch were there already; for all sinks but topics the epoch is one part."""


class SinkWriter(Protocol):
    def begin(self) -> None:
        """Once, before the first epoch of a run: take over from older runs. Raises SinkRefused."""

    def write(self, rows: DataFrame, epoch: int) -> Outcome:
        """Write an epoch, or find that it is written. Raises SinkRefused, Fenced, and what the sink itself raises."""


class SinkRefused(Exception):
    """The sink cannot take these epochs; a person has to decide. Trying again does not help."""


def is_due(sink: str, epoch: int, written: int, where: str) -> bool:
    """Whether an epoch is to be written, by the last one that is there. Raises SinkRefused.

    Only the last is ever done again. One before it, or one that leaves out others, is of another history, and whatever
    were done with it, rows would be missing or double without anybody knowing.
    """
    if epoch not in (written, written + 1):
        there = f"those up to {written} are there" if written >= 0 else "none is there"
        older = "the checkpoint is older than that" if epoch < written else "that is older than the checkpoint"
        raise SinkRefused(
            f"sink {sink}: epoch {epoch} is to be written, but {where} says that {there}: {older}. Restore what "
            "belongs together, or begin anew with another name and another checkpoint"
        )
    return epoch > written
