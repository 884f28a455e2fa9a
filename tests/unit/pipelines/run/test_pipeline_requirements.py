"""What is missing before a pipeline can run is said in one sentence, with the command that mends it."""

from pathlib import Path

import pytest

from ottla.pipelines.run import requirements
from ottla.pipelines.run.requirements import MissingRequirement, require_java, require_packages


@pytest.fixture
def bin_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that the PATH has."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def java(directory: Path, says: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "java"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)


def test_missing_extra_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "PACKAGES", ("json", "no_such_package"))
    with pytest.raises(
        MissingRequirement, match=r"no_such_package is not installed here: pip install 'ottla\[spark\]'$"
    ):
        require_packages()


def test_missing_java_is_said_with_a_command(bin_dir: Path) -> None:
    assert not list(bin_dir.iterdir())
    with pytest.raises(MissingRequirement, match=r"none in JAVA_HOME or on the PATH: \w+ install \S+"):
        require_java()


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11: "),
        ('java version "1.8.0_371"', "is Java 8: "),
        ("?", "does not run"),
    ],
)
def test_java_that_spark_does_not_run_on_is_refused(bin_dir: Path, says: str, complaint: str) -> None:
    """Spark's own message is a stack trace about class file versions."""
    java(bin_dir, says)
    with pytest.raises(MissingRequirement, match=complaint):
        require_java()


@pytest.mark.parametrize("says", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19'])
def test_java_of_java_home_is_the_one_that_counts(bin_dir: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    """Spark starts that one, whatever the PATH has."""
    java(bin_dir, 'java version "1.8.0_371"')
    java(bin_dir / "jdk" / "bin", says)
    monkeypatch.setenv("JAVA_HOME", str(bin_dir / "jdk"))
    require_java()
