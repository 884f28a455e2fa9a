"""kafka-python's own integration tests, from its source distribution, run against a server of ours.

The version is the pinned one, so that the tests belong to the client that the project installs. They are fetched once
and shared by every test process.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from peers.jars import CACHE, PROJECT, exclusive

HERE = Path(__file__).parent
SETTINGS = {
    "node.id": "0",
    "num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
}
"""What the suite expects of the one broker it talks to; that a port is advertised at all is one of its tests."""
KAFKA_VERSION = "4.3"
PATIENCE_S = 600


class SuiteUnavailableError(Exception):
    """The package index was there and did not deliver."""


def fetch_suite() -> Path:
    """The unpacked source distribution, with the files that it lacks."""
    found = re.search(r"^kafka-python==(\S+)$", (PROJECT / "constraints.txt").read_text(), re.MULTILINE)
    assert found is not None, "constraints.txt pins kafka-python"
    suite = CACHE / f"kafka_python-{found[1]}"
    with exclusive(CACHE / "kafka-python.lock"):
        if not suite.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
                _download(found[1], Path(scratch))
                os.rename(Path(scratch) / suite.name, suite)
        shutil.copyfile(HERE / "service.py", suite / "test" / "service.py")
        (suite / "test" / "__init__.py").touch()  # Otherwise Python's own package `test` is found.
    return suite


def _download(version: str, scratch: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    command += ["--dest", str(scratch), f"kafka-python=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = list(scratch.glob("*.tar.gz"))
    if done.returncode != 0 or not archives:
        raise SuiteUnavailableError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(scratch, filter="data")


def run_suite(suite: Path, host: str, port: int, report: Path, without: Iterable[str] = ()) -> dict[str, str]:
    """What became of each test: passed, skipped, failed or error."""
    environment = os.environ | {"KAFKA_URI": f"kafka://{host}:{port}", "KAFKA_VERSION": KAFKA_VERSION}
    environment["KAFKA_ROOT"] = str(suite)  # Must be a directory; it is used only where the suite starts a server.
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]  # This run is nobody's worker.
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [
        f"--junitxml={report}",
        *(f"--deselect=test/integration/{test}" for test in without),
        "test/integration",
    ]
    done = subprocess.run(
        command, cwd=suite, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    if not report.exists():
        raise SuiteUnavailableError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}")
    return outcomes(report)


def outcomes(report: Path) -> dict[str, str]:
    told = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {"failure": "failed", "error": "error", "skipped": "skipped"}
        outcome = next((kinds[child.tag] for child in case if child.tag in kinds), "passed")
        told[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = outcome
    return told
