"""One line on stderr that says how far long work is; on a terminal only, and gone when the work is done."""

import sys
import time
from types import TracebackType
from typing import Final, Self, TextIO

EVERY_S: Final = 0.2
_CLEAR: Final = "\r\x1b[2K"


class Progress:
    """`shown=False` where the line would disturb what somebody types or reads on the same terminal."""

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
        """Worth making a text for: asked for each record, so it must cost nothing."""
        return self._shown and time.monotonic() - self._last_s >= EVERY_S

    def say(self, text: str) -> None:
        if self.due:
            self._last_s = time.monotonic()
            self._drawn = True
            self._stream.write(f"{_CLEAR}{text}")
            self._stream.flush()


def rate(count: int, seconds: float) -> str:
    """A suffix such as `, 98,716/s`; nothing where there was too little to measure."""
    return f", {count / seconds:,.0f}/s" if seconds >= 1 and count >= 100 else ""
