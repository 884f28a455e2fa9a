"""Pipelines in files of their own, run in the session that the tests share, or by a driver of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from nodes.ottla_node import wait_until
from nodes.topics import Server
from spark_archive import use_spark_archive

from ottla.pipelines import Pipeline, load_toml
from ottla.pipelines.run.checkpoint import RunStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OTTLA = Path(sys.executable).with_name("ottla")
QUICK = ("--master", "local[2]", "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1")
"""A driver for a few small epochs: most of its time is the start."""


def pipeline_in(home: Path, text: str) -> Pipeline:
    home.mkdir(parents=True, exist_ok=True)
    (home / "pipeline.toml").write_text(text)
    return load_toml(str(home / "pipeline.toml"))


def write_lines(path: Path, rows: Iterable[Mapping[str, Any] | str]) -> None:
    """JSON for what is no text; the file appears whole, as a source of files expects it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    made = path.with_name(f".{path.name}.new")
    made.write_text("".join(f"{line}\n" for line in lines))
    made.rename(path)


def run_once(spark: "SparkSession", home: Path, pipeline: Pipeline, server: Server | None = None) -> RunStatus:
    """As `ottla pipeline run --once` does."""
    from ottla.pipelines.spark.run import PipelineRun, RunOptions

    bootstrap = server.bootstrap if server is not None else "127.0.0.1:1"
    return PipelineRun(spark, pipeline, RunOptions(str(home), bootstrap, once=True)).run(lambda _: None)


class Driver:
    """`ottla pipeline run` in processes of its own: Python and the JVM that it starts."""

    def __init__(
        self,
        home: Path,
        server: Server | None = None,
        *options: str,
        once: bool = True,
        log: str = "driver.log",
        program: Sequence[str] = (str(OTTLA),),
    ) -> None:
        """`program` is `ottla`, or what takes its arguments."""
        use_spark_archive()
        self._log = home / log
        bootstrap = ["-b", server.bootstrap] if server is not None else []
        given = [*bootstrap, *QUICK, *options, *(["--once"] if once else [])]
        command = [*program, "pipeline", "run", "pipeline.toml", *given]
        with self._log.open("ab") as said:
            self._process = subprocess.Popen(
                command, cwd=home, stdout=said, stderr=said, stdin=subprocess.DEVNULL, start_new_session=True
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """All of it, without a word."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """As somebody does who wants it to end well."""
        self._process.terminate()

    def wait(self, timeout_s: float = 600.0) -> int:
        return self._process.wait(timeout_s)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = 600.0) -> None:
        """While the driver runs: one that ended tells why."""

        def holds() -> bool:
            if not self.running:
                self.fail()
            return condition()

        wait_until(holds, what, timeout_s)

    def fail(self) -> NoReturn:
        """With what it said."""
        pytest.fail(self.log())

    def log(self) -> str:
        return self._log.read_text()[-4000:]
