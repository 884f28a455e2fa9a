"""What becomes of a query that failed: tried again after a while, or given up, with the reason a person can use.

Rule 1: what would fail again for certain is fatal. The engine hands on what its tasks raised as text, so these are
        known by the names of their classes; everything else may have been the network, a broker or a machine.
Rule 2: the wait doubles with every failure in a row, and an epoch that ends begins the row anew. Too many in a row are
        fatal too: whatever it is, it does not go away.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FATAL: Final = frozenset(
    {
        *("WriterFenced", "EpochRefused", "BadRows", "Fenced", "SinkRefused"),
        *("DataLost", "StepFailed", "BadOption", "BadSink", "BadTraining", "NothingToInfer", "MissingRequirement"),
        *("NoSuchPartition", "UnreadableRecords", "CheckpointRefused", "TooManyFailures", "BadModel"),
        *("AnalysisException", "ParseException"),
        *("ImportError", "ModuleNotFoundError", "AttributeError", "SyntaxError"),
    }
)
_RAISED_IN_A_QUERY: Final = re.compile(r"\[USER_RAISED_EXCEPTION\]\s*(.+?)(?:\s*SQLSTATE: \w+)?$", re.MULTILINE)
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}(?:;\s.*)?", re.DOTALL)
"""A number for programs; after a semicolon comes the plan."""
_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"(?:[\w<>]+\.)*(\w+): ?(.*)")

_FULL: Final = "No space left on device"
_MAKE_ROOM: Final = (
    "A disk is full: the checkpoint's, that of Spark's temporary files (spark.local.dir), or the sink's. Make room; "
    "nothing is lost, and the epoch is done again"
)

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
FAILURES_MAX: Final = 10


class TooManyFailures(Exception):
    """So many records failed that something else than the records must be wrong."""


@dataclass(frozen=True)
class Failure:
    kind: str
    reason: str

    @property
    def fatal(self) -> bool:
        return self.kind in FATAL


def failure_of(error: BaseException) -> Failure:
    """Of whatever the engine, or a sink on the driver, raised."""
    kind = type(error).__name__
    text = str(error)
    if (raised := _RAISED_IN_A_QUERY.search(text)) is not None:
        return Failure("StepFailed", raised[1].strip())
    if _TRACEBACK in text and (found := _last_raised(text)) is not None:
        return found
    if _FULL in text:
        where = f": {error.filename}" if isinstance(error, OSError) and error.filename else ""
        return Failure("DiskFull", f"{_FULL}{where}. {_MAKE_ROOM}")
    return Failure(kind, _first_lines(text) or kind)


def _last_raised(text: str) -> Failure | None:
    """What the innermost Python function raised: the first line that is not indented after the last traceback."""
    for line in text.rpartition(_TRACEBACK)[2].splitlines():
        if line.strip() and not line[0].isspace():
            found = _RAISED.fullmatch(line.strip())
            return Failure(found[1], found[2] or found[1]) if found is not None else None
    return None


def _first_lines(text: str) -> str:
    """Without the stack and the plan that the engine appends."""
    text = _STATE.sub("", re.split(r"\n\s*(?:JVM stacktrace:|at |== |=== |===)", text)[0])
    return " ".join(text.split())[:1_000]


class BackOff:
    """How long to wait before the next attempt."""

    def __init__(self) -> None:
        self._failures = 0

    def failed(self) -> float | None:
        """Seconds to wait; None when it is time to give up."""
        self._failures += 1
        if self._failures > FAILURES_MAX:
            return None
        return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (self._failures - 1))

    def succeeded(self) -> None:
        self._failures = 0


class FailureRate:
    """Stops a pipeline whose records fail more often than somebody thought right.

    Counted over the run. It is judged from the record on with which a single failure would still be within the rate:
    with 0.01, from the hundredth.
    """

    def __init__(self, rate_max: float) -> None:
        self._rate_max = rate_max

    def check(self, read: int, failed: int) -> None:
        """Of records that were written. Raises TooManyFailures."""
        if self._exceeded(read, failed):
            raise TooManyFailures(
                f"{self._told(read, failed)}; they are in the dead-letter topic, with the reasons in their headers. "
                "Mend what is wrong, or raise max_rate, and run the pipeline again: it goes on after them"
            )

    def check_before(self, read: int, failed: int, reason: Callable[[], str]) -> None:
        """Of records that are to be written; `reason` is that of one that failed. Raises TooManyFailures."""
        if self._exceeded(read, failed):
            raise TooManyFailures(
                f"{self._told(read, failed)}; nothing is written. One of them {reason()}. Mend what is wrong, or raise "
                "max_rate, and do the same again"
            )

    def _exceeded(self, read: int, failed: int) -> bool:
        if failed <= read * self._rate_max or failed == 0:
            return False
        return not self._rate_max or read * self._rate_max >= 1

    def _told(self, read: int, failed: int) -> str:
        return f"{failed:,} of {read:,} records failed, which is more than errors.max_rate = {self._rate_max:.4g}"
