"""Checks that Java and the packages of pipelines are installed, before Spark would fail without a clear reason.

Rule 1: nothing here imports the packages it looks for, so that planning a pipeline stays fast.
Rule 2: a missing requirement is one sentence that ends with the command that installs it.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGES: Final = ("pyspark", "pyarrow", "pandas")
JAVA_MIN: Final = 17

_INSTALL_PACKAGES: Final = "pip install 'ottla[spark]'"
_INSTALL_JAVA: Final = {"darwin": "brew install openjdk@17", "win32": "winget install EclipseAdoptium.Temurin.17.JRE"}
_INSTALL_JAVA_ELSEWHERE: Final = "apt install openjdk-17-jre-headless"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


class MissingRequirement(Exception):
    """Something has to be installed first. The text says what and how."""


def require_spark() -> None:
    """Raises MissingRequirement unless packages and Java are installed."""
    require_packages()
    require_java()


def require_packages() -> None:
    """Raises MissingRequirement unless the extra `spark` is installed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingRequirement(
            f"pipelines run on Spark, and {_listed(missing)} not installed here: {_INSTALL_PACKAGES}"
        )


def require_java() -> None:
    """Raises MissingRequirement unless there is a Java that Spark runs on."""
    mend = _INSTALL_JAVA.get(sys.platform, _INSTALL_JAVA_ELSEWHERE)
    java = find_java()
    if java is None:
        raise MissingRequirement(
            f"Spark needs Java {JAVA_MIN} or later, and there is none in JAVA_HOME or on the PATH: {mend}"
        )
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = _VERSION.search(said)
    if found is None:
        raise MissingRequirement(f"Spark needs Java {JAVA_MIN} or later, and {java} does not run: {mend}")
    if int(found[1]) < JAVA_MIN:
        raise MissingRequirement(f"Spark needs Java {JAVA_MIN} or later, and {java} is Java {found[1]}: {mend}")


def find_java() -> str | None:
    """The Java program that Spark will start: JAVA_HOME's, or the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which("java", path=str(Path(home) / "bin"))
    return shutil.which("java")


def _listed(names: list[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} are"
