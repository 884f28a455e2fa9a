"""`--from` as a person writes it."""

import re
from datetime import UTC, datetime
from typing import Final

from ottla.cli.errors import UserError
from ottla.client.consumer import BEGINNING, END, Start

_AGO: Final = re.compile(r"(\d+)([smhd])")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def start_of(text: str, now_ms: int) -> Start:
    """Raises UserError with what is allowed."""
    match text:
        case "beginning" | "earliest":
            return BEGINNING
        case "end" | "latest":
            return END
    if text.isascii() and text.isdecimal():
        return Start(offset=int(text))
    if text.startswith("@") and text[1:].isascii() and text[1:].isdecimal():
        return Start(moment=int(text[1:]))
    if ago := _AGO.fullmatch(text):
        return Start(moment=max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(
            f"--from {text!r}: expected beginning, end, an offset, a time such as 2026-11-15T20:44:46 (UTC), "
            "@MILLISECONDS, or how long ago, as in 15m"
        ) from None
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return Start(moment=max(0, int(zoned.timestamp() * 1000)))
