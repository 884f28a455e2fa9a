"""A virtual environment with the newest Spark that `ottla[spark]` allows, made once and shared by every test process.

All else in it is the project's own: what is tried is Ottla, as it is, on another Spark.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from peers.jars import CACHE, exclusive

VERSION = "4.3.0"


class NoNewestSpark(Exception):
    """It cannot be had here; the text says why."""


def newest_spark() -> Path:
    """The environment's Python. Raises NoNewestSpark."""
    directory = CACHE / f"pyspark-{VERSION}-python-{sys.version_info.major}.{sys.version_info.minor}"
    python, ready = directory / "bin" / "python", directory / "ready"
    with exclusive(CACHE / "newest-spark.lock"):
        (CACHE / ".gitignore").write_text("*\n")
        if not ready.exists():
            shutil.rmtree(directory, ignore_errors=True)
            _run(sys.executable, "-m", "venv", str(directory))
            install = ("install", "--quiet", "--disable-pip-version-check", f"pyspark=={VERSION}")
            _run(str(python), "-m", "pip", *install)
            _borrow_packages(directory)
            ready.touch()
    return python


def _borrow_packages(directory: Path) -> None:
    """Let the project's packages be found after the environment's own."""
    own = Path(sysconfig.get_path("purelib", vars={"base": str(directory), "platbase": str(directory)}))
    shared = sysconfig.get_path("purelib")
    (own / "project.pth").write_text(f"import site; site.addsitedir({shared!r})\n")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise NoNewestSpark(f"pyspark {VERSION} cannot be installed: {said[-1] if said else done.returncode}")
