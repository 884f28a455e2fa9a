"""Regular expressions of clients: RE2's, as in Kafka, which take time in proportion to the text.

Rule 1: nobody asks what the groups of a pattern have matched, so there are none: with thousands of them, every match
        would take memory and time for each.
Rule 2: what a compiled pattern may take is bounded, and with it how long compiling and a match take. A hostile one such
        as (((a{100}){100}){100}) wants gigabytes. Long lists of names are no danger, however long; repetitions are,
        when there are thousands of them: RE2 takes seconds to compile a?a?a?..., and its slow way to match it.
"""

from typing import Any, Final

import re2

from ottla.wire.errors import Error, Refused

Pattern = Any
"""A compiled one; `re2` has no types."""

_PROGRAM_BYTES_MAX: Final = 1 << 20
_REPEATING_BYTES_MAX: Final = 1 << 16
_OPERATORS: Final = str.maketrans("", "", "()?*+[]^$\\")
_OPERATORS_MAX: Final = 500
_ORDINARY_SIZE: Final = 64


def _options(memory: int) -> re2.Options:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = memory
    return options


_PLAIN: Final = _options(_PROGRAM_BYTES_MAX)
_REPEATING: Final = _options(_REPEATING_BYTES_MAX)


def compile_pattern(pattern: str, what: str) -> Pattern:
    """`what` names the pattern to the person whose pattern it is."""
    operators = len(pattern) - len(pattern.translate(_OPERATORS))
    is_plain = operators <= _OPERATORS_MAX and "{" not in pattern
    try:
        return re2.compile(pattern, _PLAIN if is_plain else _REPEATING)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else error
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise Refused(
            Error.INVALID_REGULAR_EXPRESSION, f"{what} {pattern!r} is not a regular expression of RE2: {text}"
        ) from None


def match_cost(compiled: Pattern) -> int:
    """How many matches of an ordinary pattern one of this takes as long as, at worst."""
    size: int = compiled.programsize
    return max(size // 4 - _ORDINARY_SIZE // 4, 1)
