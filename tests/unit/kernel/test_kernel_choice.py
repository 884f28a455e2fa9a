"""Which kernel runs: the native one where it was built, another only if asked for by name."""

import os
import subprocess
import sys

import pytest

from ottla.kernel.choice import chosen


@pytest.fixture(scope="module", autouse=True)
def implementation() -> None:
    """The choice itself is not the kernels' business."""


@pytest.mark.parametrize(
    ("asked", "native_built", "runs"),
    [
        ("", True, "native"),
        ("", False, "reference"),
        ("native", True, "native"),
        ("reference", True, "reference"),
        ("reference", False, "reference"),
    ],
)
def test_native_runs_unless_missing_or_declined(asked: str, native_built: bool, runs: str) -> None:
    assert chosen(asked, native_built) == runs


@pytest.mark.parametrize(("asked", "says"), [("native", "install Rust"), ("fast", "OTTLA_KERNEL=fast")])
def test_what_cannot_run_is_not_replaced_silently(asked: str, says: str) -> None:
    """Else somebody would measure the wrong kernel, and believe the figures."""
    with pytest.raises(ImportError, match=says):
        chosen(asked, native_built=False)


def test_version_names_the_kernel_that_runs() -> None:
    run = [sys.executable, "-c", "from ottla.cli import main; main(['--version'])"]
    environment = {**os.environ, "OTTLA_KERNEL": "reference"}
    shown = subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout
    assert shown.endswith("(reference kernel)\n")
