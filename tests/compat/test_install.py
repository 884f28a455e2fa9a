"""The package as somebody without Rust installs it: everything is there but the native kernel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
RUST = ("cargo", "rustc")


def test_without_rust_it_installs_on_the_reference_and_says_so(tmp_path: Path) -> None:
    sources, installed = tmp_path / "sources", tmp_path / "installed"
    _copy_sources(sources)
    without_rust = {**os.environ, "PATH": os.pathsep.join(filter(_has_no_rust, os.get_exec_path()))}
    for name in (*RUST, "OTTLA_KERNEL"):
        without_rust.pop(name.upper(), None)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(tmp_path), str(sources)], env=without_rust, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "-cp311-abi3-" in wheel.name, "one wheel serves Python 3.11 and every later one"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(installed), str(wheel)], check=True)
    assert not list(installed.rglob("_native*"))
    shown = subprocess.run(
        [str(installed / "bin" / "ottla"), "--version"],
        env={**without_rust, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.endswith("(reference kernel)\n")


def _copy_sources(to: Path) -> None:
    """Without what was built here."""
    built = shutil.ignore_patterns("target", "*.so", "*.egg-info", "__pycache__")
    for name in ("src", "native"):
        shutil.copytree(PROJECT / name, to / name, ignore=built)
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(PROJECT / name, to / name)


def _has_no_rust(directory: str) -> bool:
    return not any((Path(directory) / program).exists() for program in RUST)
