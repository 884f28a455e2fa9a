"""A process that is asked in lines and answers in lines, one at a time."""

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_STOP_S_MAX: Final = 30.0


class NoAnswer(Exception):
    """It has ended, or has said nothing for too long; the text has the end of what it wrote to standard error."""


class Answering:
    """Whatever processes it starts end with it: they are a session of their own."""

    def __init__(
        self, name: str, command: Sequence[str], home: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """`home` is where it runs; it is there."""
        self._name = name
        self._said = home / "output.log"
        with self._said.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=home,
                env=environment,
                start_new_session=True,
            )
        self._answered = True

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, line: str) -> None:
        assert self._process.stdin is not None
        self._answered = False
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self.failure("has ended") from None

    def answer(self, patience_s: float) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], patience_s)
        if not ready:
            raise self.failure(f"said nothing for {patience_s:.0f} s")
        if not (line := self._process.stdout.readline()):
            raise self.failure("has ended")
        self._answered = True
        return line.decode().strip()

    def failure(self, what: str) -> NoAnswer:
        return NoAnswer(f"{self._name} {what}:\n{self._said.read_text(errors='replace')[-4000:]}")

    def kill(self) -> None:
        """As a crash of the machine that it runs on: nobody is told."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """It is told that there are no more questions; one that is busy with the last, or does not end, is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if not self._answered:
            self.kill()
        self._process.stdin.close()
        try:
            self._process.wait(_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process.stdout.close()
