"""Where a running process spends its time, by py-spy where it is installed."""

import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

_PER_S = 500
_LINE = re.compile(r"^(?P<function>.+) \((?P<path>.+?)(:\d+)?\)$")


class Sampling:
    """Samples while its block runs; functions by the time spent in themselves, native code counted for its caller."""

    def __init__(self, pid: int, lines: int = 16) -> None:
        self._pid = pid
        self._lines = lines
        self._stacks = ""

    @staticmethod
    def program() -> str | None:
        beside = Path(sys.executable).with_name("py-spy")
        return str(beside) if beside.exists() else shutil.which("py-spy")

    @staticmethod
    def possible() -> bool:
        return Sampling.program() is not None

    def __enter__(self) -> "Sampling":
        self._place = TemporaryDirectory()
        self._output = Path(self._place.name) / "stacks"
        program = self.program()
        assert program is not None
        command = [program, "record", "-f", "raw", "-F", "-r", str(_PER_S), "-d", "600", "-p", str(self._pid)]
        self._process = subprocess.Popen(
            [*command, "-o", str(self._output)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(60)
        self._stacks = self._output.read_text() if self._output.exists() else ""
        self._place.cleanup()

    def text(self) -> str:
        own: Counter[str] = Counter()
        for line in self._stacks.splitlines():
            stack, _, count = line.rpartition(" ")
            if "_worker (" in stack.split(";")[-1]:
                continue  # A thread that waits for work.
            own[_shown(stack.split(";")[-1])] += int(count)
        total = sum(own.values())
        return "\n".join(f"{count / total:6.1%}  {name}" for name, count in own.most_common(self._lines))


def _shown(frame: str) -> str:
    """A function with its file, without what is of this machine alone."""
    found = _LINE.match(frame)
    if found is None:
        return frame
    parts = Path(found["path"]).parts
    path = "/".join(parts[parts.index("ottla") :]) if "ottla" in parts else parts[-1]
    return f"{found['function']}  ({path})"
