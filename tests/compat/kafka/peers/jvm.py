"""Kafka's Java programs by class name."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peers.class_archive import using

FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""A test's JVM lives for seconds: the optimising compiler and a parallel collector would only delay it."""

LOGGING = Path(__file__).with_name("log4j2.properties")


def archive_of(jars: Path) -> Path:
    """The archive of the classes in these jars, which a broker makes (`peers/broker`)."""
    return jars.with_suffix(".jsa")


def java(
    jars: Path, main_class: str, *arguments: str, heap: str = "256m", flags: Sequence[str] | None = None
) -> list[str]:
    """The command line that runs one class; `flags` instead of those that use the archive of classes."""
    given = using(archive_of(jars)) if flags is None else flags
    settings = [f"-Xmx{heap}", f"-Dlog4j2.configurationFile={LOGGING}", "-Djava.awt.headless=true"]
    return ["java", *FAST_START, *given, *settings, "-cp", f"{jars}/*", main_class, *arguments]


@dataclass(frozen=True)
class Output:
    """What a tool printed."""

    stdout: str
    stderr: str


class ToolFailedError(Exception):
    """A tool of Kafka's ended with an error."""


def run_tool(jars: Path, main_class: str, *arguments: str) -> Output:
    """Run one of Kafka's tools to its end."""
    done = subprocess.run(
        java(jars, main_class, *arguments), capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-4000:]
        raise ToolFailedError(f"{main_class} {' '.join(arguments)[:1000]} ended with {done.returncode}:\n{said}")
    return Output(done.stdout, done.stderr)
