"""Mishaps at a chosen record, in whatever process of Spark works on it: a pipeline's own code arranges them.

A test says what is to happen (`Mishaps.at`), the functions of `CODE` meet it on the executors. The first task that
comes to the record takes the mishap; the attempt after it finds none, and passes.
"""

from pathlib import Path

import psutil
from nodes.ottla_node import wait_until

CODE = """
import json
import os
import signal
import time
from pathlib import Path

import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

MISHAPS = Path({mishaps!r})


def meet(name, ids):
    path, taken = MISHAPS / name, MISHAPS / (name + "." + str(os.getpid()))
    try:
        what, number = path.read_text().split()
        if int(number) not in ids:
            return
        path.rename(taken)
    except FileNotFoundError:
        return
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raise":
        raise OSError("something went wrong for once")
    while taken.exists():
        time.sleep(0.01)


def checked(name, batches):
    for batch in batches:
        meet(name, batch["id"].to_pylist())
        yield batch.select(["id", "city", "cents"])


def for_table(batches):
    return checked("table", batches)


def for_files(batches):
    return checked("files", batches)


def for_delta(batches):
    return checked("delta", batches)


def partition(key, value, partitions):
    number = json.loads(value)["id"]
    meet("topic", [number])
    return number % partitions


class Total(StatefulProcessor):
    def init(self, handle):
        self._total = handle.getValueState("total", "n BIGINT, cents BIGINT")

    def handleInputRows(self, key, rows, timers):
        n, cents = self._total.get() if self._total.exists() else (0, 0)
        for row in rows:
            n, cents = n + 1, cents + row.cents
        self._total.update((n, cents))
        yield Row(city=key[0], n=n, cents=cents)

    def close(self):
        pass
"""
SMALL_BATCHES = ("--conf", "spark.sql.execution.arrow.maxRecordsPerBatch=20")
"""So that tasks get their rows in several parts, and a mishap comes in the middle of them."""


class Mishaps:
    def __init__(self, home: Path) -> None:
        """The code is `steps.py`, beside the pipeline's file."""
        self._directory = home / "mishaps"
        self._directory.mkdir()
        (home / "steps.py").write_text(CODE.replace("{mishaps!r}", repr(str(self._directory))))

    def at(self, record: int, **what: str) -> None:
        """For each sink: `kill` the Python process of the task, `raise` an error, or `hold` the task."""
        for sink, mishap in what.items():
            made = self._directory.with_name(f"{sink}-mishap")
            made.write_text(f"{mishap} {record}")
            made.rename(self._directory / sink)

    def taken(self, *sinks: str) -> bool:
        return all(any(self._directory.glob(f"{sink}.*")) for sink in sinks)

    def end(self) -> None:
        """Let go of the tasks that are held."""
        for taken in self._directory.glob("*.*"):
            taken.unlink()

    def end_with_their_processes(self) -> None:
        """When the tasks that are held have died: they do so when their executor's death is told them."""
        held = {int(taken.suffix[1:]) for taken in self._directory.glob("*.*")}
        wait_until(lambda: not held & set(psutil.pids()), "the processes of killed executors are gone")
        self.end()
