"""Formats and parses times and durations."""

import re
from datetime import UTC, datetime
from typing import Final

MOMENT_FORMS: Final = "a time such as 2026-11-15T20:44:46 (UTC), @MILLISECONDS, or how long ago, as in 15m"
_DURATION: Final = re.compile(r"(\d+)([smhd])")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str) -> int | None:
    """Milliseconds of 90s, 15m, 2h or 7d; None for other texts."""
    given = _DURATION.fullmatch(text)
    return None if given is None else int(given[1]) * _UNIT_MS[given[2]]


def moment_ms(text: str, now_ms: int) -> int | None:
    """Milliseconds since 1970 of a time, or of a duration ago; None for other texts."""
    if text.startswith("@") and text[1:].isascii() and text[1:].isdecimal():
        return int(text[1:])
    ago_ms = duration_ms(text)
    if ago_ms is not None:
        return max(0, now_ms - ago_ms)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0, int(zoned.timestamp() * 1000))


def shown_duration(ms: int) -> str:
    """The two largest units: 4m 10s, 2d 3h; below a minute, seconds to a tenth."""
    if ms < _UNIT_MS["m"]:
        return f"{ms / 1000:.1f}s"
    units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)]
    seconds = ms // 1000
    largest = next(place for place, (_, size) in enumerate(units) if seconds >= size)
    parts = []
    for unit, size in units[largest : largest + 2]:
        count, seconds = divmod(seconds, size)
        parts += [f"{count:,}{unit}"] if count else []
    return " ".join(parts)
