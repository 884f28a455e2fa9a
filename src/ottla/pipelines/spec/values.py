"""The kinds of values that keys take: how each is read from a document, written back, and described.

Rule 1: `read` takes a value from TOML or Python and raises Unfit, with what is allowed, if it does not fit exactly.
Rule 2: `write` is its inverse: `read(write(x)) == x`. A checkpoint keeps the spec in this form.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import re2

from ottla.pipelines.spec.columns import SqlColumn, parse_columns, show_columns
from ottla.pipelines.spec.model import StartPosition
from ottla.pipelines.spec.paths import local_path
from ottla.pipelines.spec.problems import Unfit, did_you_mean, listed

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

_DURATION: Final = re.compile(r"(\d+)\s*([a-z]+)")
_DURATION_MS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_SIZE: Final = re.compile(r"(\d+)\s*([KMGT]iB|bytes)")
_SIZE_BYTES: Final = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_REFERENCE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_OFFSET_KEY: Final = re.compile(r"(?:([a-zA-Z0-9._-]{1,249}):)?(\d{1,9})")
_LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True)
class ValueKind(Generic[T]):
    expects: str
    read: Callable[[object], T]
    write: Callable[[T], Any]
    names_code: bool = False
    """Whether the value may be MODULE:NAME, which must exist."""


def _same(value: Any) -> Any:
    return value


def text(expects: str, fits: Callable[[str], bool] = bool) -> ValueKind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not fits(value):
            raise Unfit(expects)
        return value

    return ValueKind(expects, read, _same)


def matching(expects: str, form: str) -> ValueKind[str]:
    pattern = re.compile(form)
    return text(expects, lambda value: pattern.fullmatch(value) is not None)


def list_of(kind: ValueKind[T], expects: str) -> ValueKind[tuple[T, ...]]:
    """One value, or a list of different values."""

    def read(value: object) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            return (kind.read(value),)
        if not value:
            raise Unfit(expects, f"the list is empty; expected {expects}")
        items = []
        for place, one in enumerate(value):
            try:
                items.append(kind.read(one))
            except Unfit as unfit:
                raise Unfit(unfit.allowed, unfit.told, (place, *unfit.at)) from None
            if items[-1] in items[:-1]:
                raise Unfit(expects, "is in the list twice", (place,))
        return tuple(items)

    return ValueKind(expects, read, lambda values: [kind.write(value) for value in values])


def whole(at_least: int = 1, at_most: int = _LONG_MAX) -> ValueKind[int]:
    expects = f"a whole number from {at_least:,} on" if at_most == _LONG_MAX else f"{at_least:,} to {at_most:,}"

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not at_least <= value <= at_most:
            raise Unfit(expects)
        return value

    return ValueKind(expects, read, _same)


def _read_share(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise Unfit(SHARE.expects)
    return float(value)


def _read_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise Unfit("true or false")
    return value


def choice(names: Iterable[E]) -> ValueKind[E]:
    known = {str(name): name for name in names}
    expects = listed(known)

    def read(value: object) -> E:
        if not isinstance(value, str) or value not in known:
            hint = did_you_mean(value, known) if isinstance(value, str) else ""
            raise Unfit(expects, f"expected {expects}{hint}")
        return known[value]

    return ValueKind(expects, read, str)


def either(words: Iterable[str], other: ValueKind[str], expects: str) -> ValueKind[str]:
    """One of the words, or a value of the other kind."""
    known = tuple(words)

    def read(value: object) -> str:
        if isinstance(value, str) and value in known:
            return value
        try:
            return other.read(value)
        except Unfit:
            raise Unfit(expects) from None

    return ValueKind(expects, read, _same, other.names_code)


def _read_duration(value: object) -> int:
    given = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if given is None or given[2] not in _DURATION_MS:
        raise Unfit(DURATION.expects)
    return int(given[1]) * _DURATION_MS[given[2]]


def _write_duration(ms: int) -> str:
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if ms % _DURATION_MS[unit] == 0 and (ms or unit == "s"))
    return f"{ms // _DURATION_MS[unit]}{unit}"


def _read_size(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    given = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if given is None or int(given[1]) == 0:
        raise Unfit(SIZE.expects)
    return int(given[1]) * _SIZE_BYTES[given[2]]


def _write_size(size: int) -> str:
    unit = next(unit for unit in ("TiB", "GiB", "MiB", "KiB", "bytes") if size % _SIZE_BYTES[unit] == 0)
    return f"{size // _SIZE_BYTES[unit]} {unit}"


def _read_pattern(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise Unfit(PATTERN.expects)
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(value, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        told = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise Unfit(PATTERN.expects, f"is not an RE2 regular expression: {told}") from None
    return value


def _read_start(value: object) -> StartPosition:
    """A time is a TOML date-time or the text of one; without a zone it is UTC."""
    if isinstance(value, Mapping):
        return StartPosition("", None, _read_offsets(value))
    if value in ("earliest", "latest"):
        return StartPosition(str(value))
    moment: object = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise Unfit(START.expects, f"expected {START.expects}{did_you_mean(value, _ENDS)}") from None
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if not isinstance(moment, datetime):
        raise Unfit(START.expects)
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    time_ms = (zoned - _EPOCH) // timedelta(milliseconds=1)
    if time_ms < 0:
        raise Unfit(START.expects, "is before 1970")
    return StartPosition("", time_ms)


def _read_offsets(value: Mapping[Any, object]) -> tuple[tuple[str, int, int], ...]:
    offsets = []
    for key, offset in value.items():
        given = _OFFSET_KEY.fullmatch(str(key))
        if given is None:
            raise Unfit(
                START.expects, f"{key} is not a partition; expected TOPIC:PARTITION, or PARTITION alone", (key,)
            )
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset <= _LONG_MAX:
            raise Unfit(START.expects, "is not an offset; expected a whole number from 0 on", (key,))
        offsets.append((given[1] or "", int(given[2]), offset))
    if not offsets:
        raise Unfit(START.expects)
    return tuple(sorted(offsets))


def _write_start(start: StartPosition) -> object:
    if start.offsets:
        return {f"{topic}:{number}" if topic else str(number): offset for topic, number, offset in start.offsets}
    if start.time_ms is not None:
        moment = datetime.fromtimestamp(start.time_ms // 1000, UTC).replace(microsecond=start.time_ms % 1000 * 1000)
        return moment.isoformat(timespec="milliseconds")
    return start.place


def _read_columns(value: object) -> tuple[SqlColumn, ...]:
    if not isinstance(value, str):
        raise Unfit(COLUMNS.expects)
    return parse_columns(value)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ENDS: Final = ("earliest", "latest")

FLAG: Final = ValueKind("true or false", _read_flag, _same)
SHARE: Final = ValueKind("a share from 0 to 1, as in 0.01", _read_share, _same)
DURATION: Final = ValueKind("a duration such as 500ms, 90s, 15 minutes, 2h or 7d", _read_duration, _write_duration)
SIZE: Final = ValueKind("a size such as 16 KiB, 64 MiB or 1 GiB, or a number of bytes", _read_size, _write_size)
TOPIC: Final = text(
    "a topic's name: 1 to 249 letters, digits, dots, underscores and hyphens",
    lambda value: _TOPIC.fullmatch(value) is not None and value not in (".", ".."),
)
TOPICS: Final = list_of(TOPIC, "names of topics")
PATTERN: Final = ValueKind("a regular expression of RE2", _read_pattern, _same)
REFERENCE: Final = replace(
    text("MODULE:NAME, as in shop.steps:clean", lambda value: _REFERENCE.fullmatch(value) is not None), names_code=True
)
PATH: Final = text("a path or an address")
LOCAL_PATH: Final = text(
    "a directory that this machine has, as a path or as file:/PATH", lambda value: bool(local_path(value))
)
COLUMN: Final = text("a column's name")
COLUMN_NAMES: Final = list_of(COLUMN, "names of columns")
COLUMNS: Final = ValueKind("columns such as order_id BIGINT, city STRING", _read_columns, show_columns)
START: Final = ValueKind(
    'earliest, latest, a time such as 2026-11-15T20:44:46, or offsets such as { "orders:0" = 42 }',
    _read_start,
    _write_start,
)
