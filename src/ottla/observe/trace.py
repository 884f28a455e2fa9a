"""The one interface for log events: `trace("isr.shrunk", partition="t-0", left=[3], lag_ms=31_004)`.

Rule 1: an event is a name (`area.past_participle`) and fields, never a sentence: people read it, programs match it.
Rule 2: every event goes to the installed sink: logging in production, the transcript in a simulation, a list in a test.
        The caller does not know which.
Rule 3: events are for changes of state, a few per second at most; they cost what a log line costs.
Rule 4: an event is logged by the logger of its area: `isr.shrunk` by `ottla.isr`. Its level can be changed while the
        node runs (`levels`).

`trace` reports a change (INFO); `warn` something an operator should look at (WARNING); `detail` something useful only
when searching for a cause (DEBUG); `defect` an error in the program (ERROR, with the traceback), which fails a
simulation.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple

LOGGER: Final = "ottla"
"""The parent logger of all areas."""
AREAS: Final = (
    *("bootstrap", "checkpoint", "client", "clock", "connection", "coordinator", "directories", "directory", "epochs"),
    *(
        "files",
        "flush",
        "index",
        "internal_topic",
        "log",
        "node",
        "partition",
        "partitions",
        "pipeline",
        "produce",
        "quorum",
    ),
    *("request", "setting", "snapshot", "summary", "task", "topic", "transaction", "txnindex", "upkeep"),
)
"""The first parts of event names."""


class Event(NamedTuple):
    name: str
    fields: dict[str, Any]
    level: int = logging.INFO

    @property
    def warning(self) -> bool:
        return self.level >= logging.WARNING

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={_shown(value)}" for key, value in self.fields.items())])


Sink = Callable[[Event], None]


@cache
def logger_of(area: str) -> logging.Logger:
    return logging.getLogger(f"{LOGGER}.{area}")


def to_logging(event: Event) -> None:
    logger = logger_of(event.name.partition(".")[0])
    if logger.isEnabledFor(event.level):
        error = event.fields.get("error") if event.level >= logging.ERROR else None
        logger.log(event.level, "%s", event, exc_info=error if isinstance(error, BaseException) else None)


_sink: Sink = to_logging


def trace(event: str, /, **fields: Any) -> None:
    _sink(Event(event, fields))


def warn(event: str, /, **fields: Any) -> None:
    _sink(Event(event, fields, logging.WARNING))


def detail(event: str, /, **fields: Any) -> None:
    _sink(Event(event, fields, logging.DEBUG))


def defect(event: str, /, error: BaseException, **fields: Any) -> None:
    _sink(Event(event, {**fields, "error": error}, logging.ERROR))


@contextmanager
def sink_installed(sink: Sink) -> Iterator[None]:
    """Send every event to `sink` until the block ends."""
    global _sink
    before, _sink = _sink, sink
    try:
        yield
    finally:
        _sink = before


@contextmanager
def recording() -> Iterator[list[Event]]:
    """Collect the events of the block: `with recording() as events: ...; assert "log.rolled" in names(events)`."""
    events: list[Event] = []
    with sink_installed(events.append):
        yield events


def names(events: list[Event]) -> list[str]:
    return [event.name for event in events]


def _shown(value: object) -> str:
    """Unquoted if unambiguous; quoted if a space, an equals sign or a line break would make the line ambiguous."""
    if isinstance(value, BaseException):
        value = f"{type(value).__name__}: {value}"
    if not isinstance(value, str):
        return repr(value).replace(", ", ",")
    if value and value.isprintable() and not any(character in " =\"'" for character in value):
        return value
    return repr(value)
