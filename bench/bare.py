"""What the machine itself needs for a broker's bytes: `bare.c`, compiled and run beside the brokers."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("bare.c")
_FLAGS = ("-O2", "-msse4.2")


class Bare(NamedTuple):
    """CPU seconds per GB, the best of the rounds."""

    receive: float
    """`recv`, CRC-32C and `write`."""
    send: float
    """`sendfile` from the page cache."""


class CannotCompile(Exception):
    """There is no compiler, or the processor has no CRC instruction: then there is no bare figure."""


def measure(home: Path, size: int, rounds: int) -> Bare:
    program = _compile(home)
    file = home / "bare.log"
    found = []
    for _ in range(rounds):
        file.unlink(missing_ok=True)
        found.append([_run(program, mode, file, size) / size * 1e9 for mode in ("receive", "send")])
    file.unlink()
    received, sent = zip(*found, strict=True)
    return Bare(min(received), min(sent))


def _compile(home: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CannotCompile("no C compiler (cc) was found")
    program = home / "bare"
    done = subprocess.run(
        [compiler, *_FLAGS, "-o", str(program), str(SOURCE)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CannotCompile(f"{SOURCE.name} does not compile here: {done.stderr.strip().splitlines()[0]}")
    return program


def _run(program: Path, mode: str, file: Path, size: int) -> float:
    done = subprocess.run([str(program), mode, str(file), str(size)], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])
