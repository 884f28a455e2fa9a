"""What `ottla serve` says when it cannot start, or starts slowly; and what the shell completes."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import kernel
from ottla.cli import main
from ottla.cli.serve.command import SLOW_KERNEL


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of this machine that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder.getsockname()[1]


def test_a_port_that_is_taken_is_named_with_what_to_do(
    taken: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--data-dir", str(tmp_path), "--listener", f"127.0.0.1:{taken}"]) == 2
    error = capsys.readouterr().err
    assert f"ottla: 127.0.0.1:{taken} is taken by another process. Stop that one, or listen on another port" in error
    assert "Errno" not in error


def test_an_address_of_another_machine_is_refused_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["serve", "--insecure", "--data-dir", str(tmp_path), "--listener", "192.0.2.1:9092"])
    assert code == 2
    assert "192.0.2.1 is no address of this machine" in capsys.readouterr().err


@pytest.mark.parametrize("implementation", ["native", "reference"])
def test_the_slow_kernel_says_so_at_the_start(
    implementation: str,
    taken: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel, "IMPLEMENTATION", implementation)
    main(["serve", "--data-dir", str(tmp_path), "--listener", f"127.0.0.1:{taken}"])
    assert (SLOW_KERNEL in capsys.readouterr().err) == (implementation == "reference")


@pytest.mark.parametrize(
    ("words", "expected"), [(["top"], "topic"), (["topic", "cre"], "create"), (["consume", "--foll"], "--follow")]
)
def test_bash_completes_commands_and_options(
    words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "ottla.bash"
    script.write_text(capsys.readouterr().out)
    line = " ".join(["ottla", *words])
    completed = subprocess.run(
        [
            "bash",
            "-c",
            f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
            f'_shtab_ottla ottla {words[-1]} ""; echo "${{COMPREPLY[@]}}"',
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert expected in completed.stdout.split()
