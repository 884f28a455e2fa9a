"""Regular expressions of clients: RE2's, as in Kafka, which take time in proportion to the text."""

from typing import Final

import re2

from ottla.wire.errors import Error, Refused

_PROGRAM_BYTES_MAX: Final = 1 << 20
"""What a compiled pattern may take; a hostile one such as (((a{100}){100}){100}) wants gigabytes."""
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = _PROGRAM_BYTES_MAX


def compile_pattern(pattern: str, what: str) -> "re2._Regexp":
    """`what` names the pattern to the person whose pattern it is."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise Refused(
            Error.INVALID_REGULAR_EXPRESSION, f"{what} {pattern!r} is not a regular expression of RE2: {text}"
        ) from None
