"""Finds the line of every key, table and array item in a TOML text.

The standard library's parser gives no positions, and libraries that do are large. So the text is read twice: tomllib
parses it, and this module finds the lines.

Rule 1: the text has been accepted by tomllib. Text that is not TOML need not be recognised.
Rule 2: paths are those of the parsed document. Items of arrays and tables in [[double brackets]] count from 0.
"""

import re
from bisect import bisect_right
from typing import Final, NamedTuple

from ottla.pipelines.spec.problems import Path

_BLANK: Final = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE: Final = re.compile(r"[ \t]*")
_STRING: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'  # Up to two more quotes belong to the text.
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR: Final = re.compile(r"[^,\]}\n#]+")
_ESCAPES: Final = re.compile(r'\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|["\\bfnrt])')
_ESCAPED: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}


class TextPosition(NamedTuple):
    line: int
    text_line: int
    """The line of a text's first character; the next line if the opening quotes are followed by a line break."""
    lines_count: bool
    """Whether the text's line breaks are the file's: no escape adds or hides one."""


def find_lines(text: str) -> dict[Path, TextPosition]:
    return _Scanner(text.replace("\r\n", "\n")).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._spots: dict[Path, TextPosition] = {}
        self._tables: dict[Path, int] = {}  # How many tables an array of tables has so far.

    def scan(self) -> dict[Path, TextPosition]:
        table: Path = ()
        while self._skip(_BLANK) < len(self._text):
            if self._at("["):
                table = self._header()
            else:
                self._pair(table)
        return self._spots

    def _header(self) -> Path:
        start = self._position
        repeated = self._text.startswith("[[", start)
        self._position += 2 if repeated else 1
        keys = self._keys()
        self._position += 2 if repeated else 1
        path: Path = ()
        for place, key in enumerate(keys):
            path += (key,)
            if repeated and place == len(keys) - 1:
                self._tables[path] = self._tables.get(path, 0) + 1
            self._mark(path, start)
            if path in self._tables:
                path += (self._tables[path] - 1,)
                self._mark(path, start)
        if not repeated:  # Its own header is more exact than headers of tables inside it.
            self._spots[path] = self._spot(start)
        return path

    def _pair(self, table: Path) -> None:
        start = self._position
        path = table
        for key in self._keys():
            path += (key,)
            self._mark(path, start)
        self._position += 1  # Skip the equals sign.
        self._skip(_SPACE)
        self._value(path)

    def _value(self, path: Path) -> None:
        start = self._position
        if self._at("["):
            self._mark(path, start)
            self._array(path)
        elif self._at("{"):
            self._mark(path, start)
            self._position += 1
            while self._skip(_BLANK) >= 0 and not self._at("}"):
                self._pair(path)
                self._skip(_BLANK)
                self._position += self._at(",")
            self._position += 1
        else:
            match = _STRING.match(self._text, start) or _SCALAR.match(self._text, start)
            assert match is not None
            self._position = match.end()
            self._spots[path] = self._text_spot(self._spots.get(path), match[0], start)

    def _array(self, path: Path) -> None:
        self._position += 1
        item = 0
        while self._skip(_BLANK) >= 0 and not self._at("]"):
            self._value((*path, item))
            item += 1
            self._skip(_BLANK)
            self._position += self._at(",")
        self._position += 1

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._skip(_SPACE)
            match = _STRING.match(self._text, self._position) or _BARE.match(self._text, self._position)
            assert match is not None
            keys.append(_unquoted(match[0]))
            self._position = match.end()
            self._skip(_SPACE)
            if not self._at("."):
                return keys
            self._position += 1

    def _skip(self, what: re.Pattern[str]) -> int:
        match = what.match(self._text, self._position)
        assert match is not None
        self._position = match.end()
        return self._position

    def _at(self, sign: str) -> bool:
        return self._text.startswith(sign, self._position)

    def _mark(self, path: Path, position: int) -> None:
        if path not in self._spots:
            self._spots[path] = self._spot(position)

    def _spot(self, position: int) -> TextPosition:
        line = bisect_right(self._ends, position - 1) + 1
        return TextPosition(line, line, True)

    def _text_spot(self, key: TextPosition | None, token: str, start: int) -> TextPosition:
        begin = self._spot(start).line
        opens = token[:4] in ('"""\n', "'''\n")
        return TextPosition(key.line if key else begin, begin + opens, not (token[0] == '"' and "\\" in token))


def _unquoted(key: str) -> str:
    if key[0] == "'":
        return key[1:-1]
    if key[0] != '"':
        return key
    return _ESCAPES.sub(lambda match: _ESCAPED.get(match[1]) or chr(int(match[1][1:], 16)), key[1:-1])
