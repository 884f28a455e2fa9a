"""A sampling profile of a running process, by py-spy if it is installed."""

import linecache
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeVar

from bench.report import Section

_PER_S = 500
_FRAME = re.compile(r"^(?P<function>.+) \((?P<path>.+?)(:(?P<line>\d+))?\)$")
K = TypeVar("K", bound=Hashable)


class Line(NamedTuple):
    """A line of code and its share of the time."""

    share: float
    function: str
    where: str
    code: str

    def __str__(self) -> str:
        return f"{self.share:.0%} `{self.code or self.function}` ({self.where})"


class Sampling:
    """Samples while its block runs; functions by own time, native code counted for its caller."""

    def __init__(self, pid: int, lines: int = 16) -> None:
        self._pid = pid
        self._count = lines
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
        # Without stopping the process for each sample: requests would time out, and be sent again.
        command = [program, "record", "--nonblocking", "-f", "raw", "-r", str(_PER_S), "-d", "600"]
        command += ["-p", str(self._pid)]
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
        return "\n".join(f"{share:6.1%}  {name}" for name, share in _shares(self._own(_function))[: self._count])

    def costliest_lines(self, count: int = 3) -> list[Line]:
        return [Line(share, *where) for where, share in _shares(self._own(_line))[:count]]

    def tell(self, title: str, known: Mapping[str, str], section: Section) -> None:
        """Add a finding with the costliest lines and their explanations, and the profile as a file."""
        name = "".join(letter if letter.isalnum() else "-" for letter in title.lower()).replace("--", "-")
        file, lines = f"profiles/{name}.txt", self.costliest_lines()
        listed = "\n".join(f"{line.share:6.1%}  {line.where}  {line.code}" for line in lines)
        section.files[file] = (
            f"{title}: shares of the broker's time on the processor, sampled by py-spy; native code and the "
            f"system count for the Python that calls them\n\nby line\n{listed}\n\nby function\n{self.text()}\n"
        )
        told = dict.fromkeys(known[line.function] for line in lines if line.function in known)
        done = f". {'; '.join(told)}" if told else ""
        section.findings.append(f"costliest lines, {title}: {', '.join(map(str, lines))}{done} ({file})")

    def _own(self, named: Callable[[str], K]) -> Counter[K]:
        """Samples by the innermost frame, under the name that `named` gives it."""
        own: Counter[K] = Counter()
        for stack, count in (line.rsplit(" ", 1) for line in self._stacks.splitlines() if " " in line):
            innermost = stack.split(";")[-1]
            if "_worker (" not in innermost:  # An idle thread of a pool.
                own[named(innermost)] += int(count)
        return own


def _shares(own: Counter[K]) -> list[tuple[K, float]]:
    total = sum(own.values())
    return [(name, count / total) for name, count in own.most_common()]


def _function(frame: str) -> str:
    """A function with its file, without the part of the path that is specific to this machine."""
    found = _FRAME.match(frame)
    return frame if found is None else f"{found['function']}  ({_short(found['path'])})"


def _line(frame: str) -> tuple[str, str, str]:
    """A function, its file and line, and the source text."""
    found = _FRAME.match(frame)
    if found is None:
        return frame, "", ""
    number = found["line"] or "0"
    return found["function"], f"{_short(found['path'])}:{number}", linecache.getline(found["path"], int(number)).strip()


def _short(path: str) -> str:
    parts = Path(path).parts
    return "/".join(parts[parts.index("ottla") :]) if "ottla" in parts else parts[-1]
