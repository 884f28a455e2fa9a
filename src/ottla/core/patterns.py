"""Regular expressions from clients. The engine is RE2, as in Kafka, whose time is linear in the text.

Rule 1: capture groups are disabled: no caller reads them, and thousands of them would cost memory and time in every
        match.
Rule 2: the size of a compiled pattern is bounded, and with it the time to compile and to match. A hostile pattern such
        as (((a{100}){100}){100}) needs gigabytes. Long alternations of names are harmless. Thousands of repetitions are
        not: RE2 takes seconds to compile a?a?a?..., and falls back to its slow matcher.
"""

from typing import Any, Final

import re2

from ottla.wire.errors import Error, Refused

Pattern = Any
"""A compiled pattern; `re2` has no type annotations."""

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
    """Compile a pattern. `what` describes it in the error message."""
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
    """The worst-case cost of one match, in matches of an ordinary pattern."""
    size: int = compiled.programsize
    return max(size // 4 - _ORDINARY_SIZE // 4, 1)
