"""The jars of Apache Kafka, and of other peers, fetched once with Maven and shared by every test process.

Rule 1: a `pom.xml` pins the versions; the directory is named by its digest, so a changed version fetches anew.
Rule 2: one process fetches, under a file lock, into a directory that gets its final name only when complete.
Rule 3: a machine without Java or Maven skips; a machine that claims to be CI must not.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).parents[4]
POM = Path(__file__).parents[1] / "pom.xml"
CACHE = PROJECT / ".peers"


class JarsUnavailableError(Exception):
    """Maven was there and did not deliver."""


def missing_programs() -> list[str]:
    """What a machine lacks to run Kafka at all."""
    return [program for program in ("java", "mvn") if shutil.which(program) is None]


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock between processes; it goes away with its holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def fetch_jars(pom: Path = POM) -> Path:
    """The directory that holds the jars a `pom.xml` names, Kafka's without one, and all they depend on."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    jars = CACHE / f"jars-{digest}"
    with exclusive(CACHE / "lock"):
        (CACHE / ".gitignore").write_text("*\n")
        if not jars.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                _copy_dependencies(pom, Path(scratch) / "jars")
                os.rename(Path(scratch) / "jars", jars)
    return jars


def _copy_dependencies(pom: Path, target: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not any(target.glob("*.jar")):
        said = (done.stdout + done.stderr)[-4000:]
        raise JarsUnavailableError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
