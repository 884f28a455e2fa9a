"""The fast path changes speed and no answer: a broker whose `fastpath` folder is removed passes the same tests."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FASTPATH = "broker/fastpath"
TUNING = "broker/network/tuning"
"""It affects the streams of requests that the fast path takes, and nothing else."""
CLIENTS = ("records", "codecs", "idempotence")
ODD = "strays or zstd or idempotent or fetches or sessions or long_poll or forgotten"
"""The odd requests that produce or fetch."""
TESTS = {
    "unit": ("tests/unit/broker", "--ignore", f"tests/unit/{FASTPATH}", "--ignore", f"tests/unit/{TUNING}"),
    # Kafka itself is tested by the same tests elsewhere.
    **{name: (f"tests/compat/clients/test_clients_{name}.py", "-k", "ottla") for name in CLIENTS},
    "odd": ("tests/compat/clients/test_clients_odd_requests.py", "-k", ODD),
}


@pytest.fixture(scope="module")
def without_fastpath(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python that imports such a copy of the package."""
    source, copy = ROOT / "src" / "ottla", tmp_path_factory.mktemp("without_fastpath")
    shutil.copytree(source, copy / "ottla", ignore=shutil.ignore_patterns("__pycache__", "fastpath"))
    assert (source / FASTPATH).is_dir()
    assert not (copy / "ottla" / FASTPATH).exists()
    # Its tests share neither topics nor a Kafka with those of this process.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return alone | {"PYTHONPATH": str(copy)}


@pytest.mark.parametrize("tests", TESTS.values(), ids=TESTS)
def test_a_broker_without_the_fast_path_passes_the_same_tests(
    without_fastpath: dict[str, str], tests: Sequence[str]
) -> None:
    imported = [sys.executable, "-c", "import ottla; print(ottla.__file__)"]
    found = subprocess.run(imported, cwd=ROOT, env=without_fastpath, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).parents[1] == Path(without_fastpath["PYTHONPATH"])
    command = [sys.executable, "-m", "pytest", "-x", "-n", "0", *tests]
    ended = subprocess.run(command, cwd=ROOT, env=without_fastpath, capture_output=True, text=True, check=False)
    assert ended.returncode == pytest.ExitCode.OK, ended.stdout[-5_000:] + ended.stderr[-2_000:]
