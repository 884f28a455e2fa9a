"""The interface of all sinks: the context of a run, the writer, and the result of an epoch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

from ottla.pipelines.spec.identity import PipelineIdentity
from ottla.pipelines.spec.model import DeliveryGuarantee, Sink
from ottla.pipelines.spec.sinks import kind_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class RunContext:
    """The run for which a sink writes."""

    identity: PipelineIdentity
    name: str
    """The run's name, which sorts after the names of all earlier runs."""
    checkpoint_id: str
    bootstrap: str
    delivery: DeliveryGuarantee
    directory: str
    """The directory of the pipeline's file. Paths in the pipeline are relative to it."""


class EpochResult(NamedTuple):
    """The counts of one epoch after it was written."""

    rows: int
    dead_letters: int = 0
    skipped: int = 0
    """How many parts of the epoch were already written. A topic sink has a part for each task, other sinks have one."""


class SinkWriter(Protocol):
    def begin(self) -> None:
        """Take over from older runs. Called once, before the first epoch of a run. Raises SinkRefused."""

    def write(self, rows: "DataFrame", epoch: int) -> EpochResult:
        """Write an epoch unless an earlier attempt has written it. Raises SinkRefused, RunFenced, and exceptions of the
        system that the sink writes to."""


class SinkRefused(Exception):
    """The sink cannot take these epochs, and trying again does not help: a person has to decide."""


def writer_of(sink: Sink, run: RunContext, spark: "SparkSession") -> SinkWriter:
    """Create the writer of a sink. Raises MissingRequirement and SinkRefused."""
    return cast(SinkWriter, kind_of(sink).writer(sink, run, spark))


def output_modes(sink: Sink) -> tuple[str, str]:
    """Spark's output mode for a sink, and the mode to try if Spark does not support the first for the query.

    A sink that replaces rows (`upsert`) takes every change. A sink that adds rows takes final results, if a watermark
    says when they are final.
    """
    return ("update", "append") if getattr(sink, "upsert", ()) else ("append", "update")


def is_due(sink: str, epoch: int, written: int, where: str) -> bool:
    """Whether an epoch has to be written; `written` is the last epoch that the sink has. Raises SinkRefused.

    Only the last epoch is ever repeated. Any other epoch belongs to another checkpoint history: writing or skipping it
    would lose or double rows unnoticed.
    """
    if epoch not in (written, written + 1):
        there = f"those up to {written} are there" if written >= 0 else "none is there"
        older = "the checkpoint is older than that" if epoch < written else "that is older than the checkpoint"
        raise SinkRefused(
            f"sink {sink}: epoch {epoch} is to be written, but {where} says that {there}: {older}. Restore a sink and "
            "a checkpoint that belong together, or start over with another pipeline name and another checkpoint"
        )
    return epoch > written
