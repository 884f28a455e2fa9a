"""Java's .properties format, of `server.properties` and `meta.properties`.

Rule 1: a line is a comment if its first character after blanks is # or !, and only a natural line can be one.
Rule 2: an odd number of backslashes at the end of a line joins the next one to it, without that one's leading blanks.
Rule 3: the name ends at the first =, : or blank without a preceding backslash; blanks around one = or : are ignored.
Rule 4: backslash t, n, r, f and u with four hexadecimal digits stand for a character; before any other character the
        backslash is dropped. A name that occurs twice has its last value.
"""

import re
from collections.abc import Iterator

BLANKS = " \t\f"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.?)", re.DOTALL)
_NAME = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class BadProperties(ValueError):
    """The text is not a valid .properties file. Java does not read it either."""


def parse_properties(text: str) -> dict[str, str]:
    properties = {}
    for number, line in _logical_lines(text):
        match = _NAME.fullmatch(line)
        if match is None:
            raise BadProperties(f"line {number}: no name in {line!r}")
        properties[_unescaped(match[1], number)] = _unescaped(match[2], number)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that hold a property, joined where continued, each with its first line number."""
    begun, parts = 0, list[str]()
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(BLANKS)
        if not parts and (not line or line[0] in "#!"):
            continue
        begun = begun if parts else number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        yield begun, "".join([*parts, line])
        parts = []
    if any(parts):
        yield begun, "".join(parts)


def _unescaped(text: str, number: int) -> str:
    def replacement(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape == "u":
            raise BadProperties(f"line {number}: \\u needs four hexadecimal digits after it")
        return _LETTERS.get(escape, escape)

    # Java writes characters beyond 16 bits as two escapes, a surrogate pair; the round trip makes one character of it.
    return _ESCAPE.sub(replacement, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
