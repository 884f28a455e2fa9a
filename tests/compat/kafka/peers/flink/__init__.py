"""Apache Flink: its SQL in a JVM of its own, on a cluster that lives in there too.

Rule 1: nothing listens but on the loopback, and nothing is kept outside the directory that is given.
Rule 2: a job that fails is not begun again, unless the settings say so: the failure is what somebody wants to see.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peers.answering import Answering
from peers.jars import JarsUnavailableError, fetch_jars, missing_programs

POM: Final = Path(__file__).with_name("pom.xml")
PROGRAM: Final = Path(__file__).with_name("FlinkSql.java")
_SETTINGS: Final = {
    "restart-strategy.type": "disable",
    "table.local-time-zone": "UTC",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "jobmanager.bind-host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
    "taskmanager.host": "127.0.0.1",
}
_OPENED: Final = ("java.lang", "java.lang.reflect", "java.net", "java.text", "java.time", "java.util")
"""Flink looks into these packages of Java, which are closed since Java 17."""


class NoFlink(Exception):
    """It is not to be had; the text says why."""


@dataclass(frozen=True)
class Ended:
    """A statement that has."""

    wall_s: float
    job_s: float
    """Of that, what its job ran, as Flink counts it; planning it and starting the cluster are not in there."""


def flink_jars() -> Path:
    """Fetched once. Raises NoFlink."""
    if missing := missing_programs():
        raise NoFlink(f"{' and '.join(missing)} not found")
    try:
        return fetch_jars(POM)
    except JarsUnavailableError as failed:
        raise NoFlink(f"the registry does not give all that {POM.parent.name}/{POM.name} names: {failed}") from None


class FlinkSql:
    """A JVM that takes statements, one after the other."""

    def __init__(self, home: Path, settings: Mapping[str, str], java_options: Iterable[str] = ()) -> None:
        """`home` is made, and gets checkpoints, temporary files and what Flink says. May raise NoFlink."""
        jars = flink_jars()
        home.mkdir(parents=True, exist_ok=True)
        own = {"io.tmp.dirs": str(home), "execution.checkpointing.dir": (home / "checkpoints").as_uri()}
        given = [f"{name}={value}" for name, value in (_SETTINGS | own | dict(settings)).items()]
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        options = [*opened, f"-Djava.io.tmpdir={home}", *java_options]
        self._process = Answering("Flink", ["java", *options, "-cp", f"{jars}/*", str(PROGRAM), *given], home)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self, patience_s: float) -> None:
        if (line := self._process.answer(patience_s)) != "ready":
            raise self._process.failure(f"began with {line!r}")

    def execute(self, statement: str, patience_s: float) -> Ended:
        """Until the statement has ended, its job too. Raises NoAnswer, with the reason if it failed."""
        self.begin(statement)
        wall_ms, job_ms = self._process.answer(patience_s).split()
        return Ended(int(wall_ms) / 1000, int(job_ms) / 1000)

    def begin(self, statement: str) -> None:
        """Without waiting; nothing else is answered until it has ended."""
        self._process.ask(" ".join(statement.split()))

    def kill(self) -> None:
        """As a crash of the machine that it runs on: nobody is told."""
        self._process.kill()

    def stop(self) -> None:
        """When no statement is under way."""
        self._process.stop()
