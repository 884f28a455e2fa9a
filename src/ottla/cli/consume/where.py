"""Parses `--from`."""

from ottla.cli.errors import UserError
from ottla.cli.times import MOMENT_FORMS, moment_ms
from ottla.client.consumer import BEGINNING, END, Start


def start_of(text: str, now_ms: int) -> Start:
    """Where to begin, by the value of --from. Raises UserError with the allowed forms."""
    match text:
        case "beginning" | "earliest":
            return BEGINNING
        case "end" | "latest":
            return END
    if text.isascii() and text.isdecimal():
        return Start(offset=int(text))
    moment = moment_ms(text, now_ms)
    if moment is None:
        raise UserError(f"--from {text!r}: expected beginning, end, an offset, {MOMENT_FORMS}")
    return Start(moment=moment)
