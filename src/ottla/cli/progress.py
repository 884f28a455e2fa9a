"""A progress line on stderr; on a terminal only, and removed when the work is done."""

import sys
import time
from types import TracebackType
from typing import Final, Self, TextIO

EVERY_S: Final = 0.2
_CLEAR: Final = "\r\x1b[2K"


class ProgressLine:
    """`shown=False` if the line would disturb input or output on the same terminal."""

    def __init__(self, *, shown: bool = True, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = shown and self._stream.isatty()
        self._last_s = time.monotonic()
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()

    @property
    def due(self) -> bool:
        """Whether to update the text now. Called for each record, so it must be cheap."""
        return self._shown and time.monotonic() - self._last_s >= EVERY_S

    def say(self, text: str) -> None:
        if self.due:
            self._last_s = time.monotonic()
            self._drawn = True
            self._stream.write(f"{_CLEAR}{text}")
            self._stream.flush()


def rate(count: int, seconds: float) -> str:
    """A suffix such as `, 98,716/s`; empty if there was too little to measure."""
    return f", {count / seconds:,.0f}/s" if seconds >= 1 and count >= 100 else ""
