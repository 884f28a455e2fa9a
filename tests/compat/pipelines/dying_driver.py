"""`ottla` in a driver that dies when every sink has written an epoch and Spark has written down none of them.

    python dying_driver.py SINKS EPOCH OUTCOMES pipeline run ...

Each sink's first epoch from EPOCH on is written, and Spark is not told; when that is true of SINKS sinks, the driver
and its JVM are killed. OUTCOMES is a file with a line for every epoch that a sink has written or skipped.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ottla.cli import main
from ottla.pipelines.sink.writing import EpochResult, RunContext, SinkWriter, writer_of
from ottla.pipelines.spark import queries
from ottla.pipelines.spec.model import Sink


class Death:
    def __init__(self, sinks: int, epoch: int, outcomes: Path) -> None:
        self._all = threading.Barrier(sinks)
        self._epoch = epoch
        self._outcomes = outcomes

    def written(self, sink: str, epoch: int, outcome: EpochResult) -> None:
        with self._outcomes.open("a") as file:
            file.write(json.dumps({"sink": sink, "epoch": epoch, **outcome._asdict()}) + "\n")
        if epoch >= self._epoch and not outcome.skipped:
            self._all.wait()
            os.killpg(os.getpgrp(), signal.SIGKILL)


class DyingWriter:
    """A sink's writer, and death after it."""

    def __init__(self, sink: str, writer: SinkWriter, death: Death) -> None:
        self._sink, self._writer, self._death = sink, writer, death

    def begin(self) -> None:
        self._writer.begin()

    def write(self, rows: DataFrame, epoch: int) -> EpochResult:
        outcome = self._writer.write(rows, epoch)
        self._death.written(self._sink, epoch, outcome)
        return outcome


def run(sinks: str, epoch: str, outcomes: str, *command: str) -> int:
    death = Death(int(sinks), int(epoch), Path(outcomes))

    def dying(sink: Sink, run: RunContext, spark: SparkSession) -> SinkWriter:
        return DyingWriter(sink.name, writer_of(sink, run, spark), death)

    queries.writer_of = dying
    return main(command)


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
