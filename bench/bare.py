"""The machine's own cost for a broker's bytes: `bare.c`, compiled and run beside the brokers."""

import shutil
import subprocess
from pathlib import Path
from typing import Literal

SOURCE = Path(__file__).with_name("bare.c")
_FLAGS = ("-O2", "-msse4.2")

Mode = Literal["receive", "send"]
WHAT: dict[Mode, str] = {"receive": "recv, crc32c, write", "send": "sendfile, 1 MiB at a time, each asked for"}


class CannotCompile(Exception):
    """No compiler, or a processor without a CRC instruction: then there is no bare figure."""


class Bare:
    def __init__(self, home: Path, size: int) -> None:
        self._program = _compile(home)
        self._size = size
        self._files: dict[Mode, Path] = {"receive": home / "bare-received.log", "send": home / "bare-sent.log"}
        self._run("receive", self._files["send"])

    def cpu_s_per_gb(self, mode: Mode) -> float:
        """One run; received bytes go to a new file, sent bytes come from the page cache."""
        if mode == "receive":
            self._files[mode].unlink(missing_ok=True)
        return self._run(mode, self._files[mode]) / self._size * 1e9

    def _run(self, mode: Mode, file: Path) -> float:
        words = [str(self._program), mode, str(file), str(self._size)]
        return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[0])


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
