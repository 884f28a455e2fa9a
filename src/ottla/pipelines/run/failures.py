"""Decides whether a failed query is restarted after a wait or given up, and finds the reason to show.

Rule 1: an error that would certainly happen again is fatal. Spark passes on what its tasks raised as text, so fatal
        errors are recognised by the names of their classes. Any other error may come from the network or a machine.
Rule 2: the wait doubles with every failure in a row; an epoch that is finished ends the row. Too many failures in a row
        are fatal too.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FATAL: Final = frozenset(
    {
        *("WriterFenced", "EpochRefused", "BadRows", "RunFenced", "SinkRefused"),
        *("DataLost", "StepFailed", "BadOption", "BadSink", "BadTraining", "NothingToInfer", "MissingRequirement"),
        *("NoSuchPartition", "UnreadableRecords", "CheckpointRefused", "TooManyFailures", "BadModel"),
        *("AnalysisException", "ParseException"),
        *("ImportError", "ModuleNotFoundError", "AttributeError", "SyntaxError"),
    }
)
_RAISED_IN_A_QUERY: Final = re.compile(r"\[USER_RAISED_EXCEPTION\]\s*(.+?)(?:\s*SQLSTATE: \w+)?$", re.MULTILINE)
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}(?:;\s.*)?", re.DOTALL)
"""The SQLSTATE code of a Spark error, and the query plan that may follow it."""
_TRACEBACK: Final = "Traceback (most recent call last):"
_RAISED: Final = re.compile(r"(?:[\w<>]+\.)*(\w+): ?(.*)")

_FULL: Final = "No space left on device"
_MAKE_ROOM: Final = (
    "A disk is full: the checkpoint's, that of Spark's temporary files (spark.local.dir), or the sink's. Free some "
    "space; nothing is lost, and the epoch is repeated"
)

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
FAILURES_MAX: Final = 10


class TooManyFailures(Exception):
    """More records failed than `errors.max_rate` allows."""


@dataclass(frozen=True)
class QueryFailure:
    kind: str
    reason: str

    @property
    def fatal(self) -> bool:
        return self.kind in FATAL


def failure_of(error: BaseException) -> QueryFailure:
    """The kind and reason of an exception that Spark, or a sink on the driver, raised."""
    kind = type(error).__name__
    text = str(error)
    if (raised := _RAISED_IN_A_QUERY.search(text)) is not None:
        return QueryFailure("StepFailed", raised[1].strip())
    if _TRACEBACK in text and (found := _last_raised(text)) is not None:
        return found
    if _FULL in text:
        where = f": {error.filename}" if isinstance(error, OSError) and error.filename else ""
        return QueryFailure("DiskFull", f"{_FULL}{where}. {_MAKE_ROOM}")
    return QueryFailure(kind, _first_lines(text) or kind)


def _last_raised(text: str) -> QueryFailure | None:
    """The exception of the innermost Python traceback: the first line after it that is not indented."""
    for line in text.rpartition(_TRACEBACK)[2].splitlines():
        if line.strip() and not line[0].isspace():
            found = _RAISED.fullmatch(line.strip())
            return QueryFailure(found[1], found[2] or found[1]) if found is not None else None
    return None


def _first_lines(text: str) -> str:
    """The message without the stack and the plan that Spark appends."""
    text = _STATE.sub("", re.split(r"\n\s*(?:JVM stacktrace:|at |== |=== |===)", text)[0])
    return " ".join(text.split())[:1_000]


class RestartBackoff:
    """How long to wait before a query is restarted."""

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
    """Stops a run if the share of failed records exceeds `errors.max_rate`.

    The share is checked only from so many records on that one failure alone does not exceed the rate: with 0.01, from
    100 records on.
    """

    def __init__(self, rate_max: float) -> None:
        self._rate_max = rate_max

    def check(self, read: int, failed: int) -> None:
        """Check the share of failed records that have been written to the dead-letter topic. Raises TooManyFailures."""
        if self._exceeded(read, failed):
            raise TooManyFailures(
                f"{self._told(read, failed)}; they are in the dead-letter topic, with the reasons in their headers. "
                "Correct the cause, or raise max_rate, and run the pipeline again: it continues after them"
            )

    def check_before(self, read: int, failed: int, reason: Callable[[], str]) -> None:
        """Check the share of failed records before anything is written. `reason` returns the error of one of them.
        Raises TooManyFailures."""
        if self._exceeded(read, failed):
            raise TooManyFailures(
                f"{self._told(read, failed)}; nothing is written. One of them {reason()}. Correct the cause, or raise "
                "max_rate, and run it again"
            )

    def _exceeded(self, read: int, failed: int) -> bool:
        if failed <= read * self._rate_max or failed == 0:
            return False
        return not self._rate_max or read * self._rate_max >= 1

    def _told(self, read: int, failed: int) -> str:
        return f"{failed:,} of {read:,} records failed, which is more than errors.max_rate = {self._rate_max:.4g}"
