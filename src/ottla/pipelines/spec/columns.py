"""Columns as Spark's SQL declares them: `order_id BIGINT NOT NULL, tags ARRAY<STRING>, at TIMESTAMP`.

Only the syntax and the names of types are checked, so that most mistakes are found before Spark starts. Spark checks
the rest.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.pipelines.spec.problems import Unfit, did_you_mean

_SAME: Final = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
}
TYPES: Final = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING", "BINARY"),
    *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "VARIANT", "ARRAY", "MAP", "STRUCT"),
)
_FORM: Final = "columns such as order_id BIGINT, city STRING, total DECIMAL(10,2), tags ARRAY<STRING>"
_TOKEN: Final = re.compile(r"\s+|--[^\n]*|`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\w+|.", re.DOTALL)


class SqlColumn(NamedTuple):
    name: str
    type: str
    """In one spelling: upper case, without optional blanks."""


def parse_columns(text: str) -> tuple[SqlColumn, ...]:
    """The columns of a declaration in SQL. Raises Unfit."""
    return _Parser(text).columns()


def show_columns(columns: Iterable[SqlColumn]) -> str:
    return ", ".join(f"{_quoted(column.name)} {column.type}" for column in columns)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, int]] = []
        line = 0
        for token in _TOKEN.findall(text):
            if not token.isspace() and not token.startswith("--"):
                self._tokens.append((token, line))
            line += token.count("\n")
        self._place = 0

    def columns(self) -> tuple[SqlColumn, ...]:
        found = self._fields(end="")
        seen = set[str]()
        for column in found:
            if column.name.lower() in seen:
                raise Unfit("every column once", f"column {column.name} is declared twice")
            seen.add(column.name.lower())
        return found

    def _fields(self, end: str) -> tuple[SqlColumn, ...]:
        fields = []
        while True:
            name = self._name()
            if self._next == ":":
                self._place += 1
            fields.append(SqlColumn(name, self._type() + self._decorations()))
            if self._next != ",":
                break
            self._place += 1
        if self._next != end:
            raise self._unfit(f"expected a comma after the column {fields[-1].name}, found {self._next or 'the end'}")
        return tuple(fields)

    def _name(self) -> str:
        token = self._next
        if token[:1] == "`":
            self._place += 1
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            raise self._unfit(f"expected a column's name, found {token or 'the end'}")
        self._place += 1
        return token

    def _type(self) -> str:
        given = self._next
        name = _SAME.get(given.upper(), given.upper())
        if name not in TYPES:
            raise self._unfit(
                f"{given or 'the end'} is not a type; the types are {', '.join(TYPES)}{did_you_mean(given, TYPES)}"
            )
        self._place += 1
        if name == "DECIMAL" and self._next == "(":
            return name + self._precision()
        if name == "ARRAY":
            self._take("<")
            return f"ARRAY<{self._type()}{self._take('>')}"
        if name == "MAP":
            self._take("<")
            key = self._type()
            self._take(",")
            return f"MAP<{key},{self._type()}{self._take('>')}"
        if name == "STRUCT":
            self._take("<")
            fields = ",".join(f"{_quoted(field.name)}:{field.type}" for field in self._fields(end=">"))
            return f"STRUCT<{fields}{self._take('>')}"
        return name

    def _precision(self) -> str:
        self._take("(")
        digits = [self._number()]
        if self._next == ",":
            self._place += 1
            digits.append(self._number())
        self._take(")")
        if digits[0] > 38 or (digits[-1] > digits[0] and len(digits) == 2):
            raise self._unfit("a DECIMAL has at most 38 digits, and its scale is at most its number of digits")
        return f"({','.join(map(str, digits))})"

    def _number(self) -> int:
        token = self._next
        if not token.isascii() or not token.isdecimal():
            raise self._unfit(f"expected a number of digits, found {token or 'the end'}")
        self._place += 1
        return int(token)

    def _decorations(self) -> str:
        text = ""
        if self._next.upper() == "NOT":
            self._place += 1
            self._take("NULL")
            text = " NOT NULL"
        if self._next.upper() == "COMMENT":
            self._place += 2
        return text

    def _take(self, token: str) -> str:
        if self._next.upper() != token:
            raise self._unfit(f"expected {token}, found {self._next or 'the end'}")
        self._place += 1
        return token

    @property
    def _next(self) -> str:
        return self._tokens[self._place][0] if self._place < len(self._tokens) else ""

    def _unfit(self, told: str) -> Unfit:
        line = self._tokens[min(self._place, len(self._tokens) - 1)][1] if self._tokens else 0
        return Unfit(_FORM, told, line_in_text=line)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"
