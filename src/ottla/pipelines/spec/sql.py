"""A light reading of a query: which tables it names, whether it keeps state, whether it can be repeated, and whether it
takes columns that it does not name.

This is not a parser of SQL: it looks at words, brackets and quotes. That is enough to find a misspelt table before
Spark starts, and Spark parses the query in full.

Rule 1: a name after FROM or JOIN, or after a comma in such a list, is a table, unless a WITH names it or it is called
        like a function. FROM inside extract(), trim(), substring(), overlay() and after DISTINCT names no table.
Rule 2: a name with a dot (`catalog.table`, delta.`path`) is a table outside the pipeline and is not checked.
Rule 3: names are case-insensitive, as in Spark.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.pipelines.spec.problems import Unfit

_TOKEN: Final = re.compile(
    r"(?P<blank>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>[rR]?(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))"
    r"|(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<word>[^\W\d]\w*)"
    r"|(?P<number>\d[\w.]*)"
    r"|(?P<sign>.)",
    re.DOTALL,
)
_BEGINS: Final = {"SELECT", "WITH", "FROM", "VALUES", "("}
_FROM_IS_AN_ARGUMENT: Final = {"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY"}
_AFTER_TABLES: Final = {
    *("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "WINDOW", "UNION", "EXCEPT", "INTERSECT", "MINUS", "SORT"),
    *("CLUSTER", "DISTRIBUTE", "SELECT", "WITH", "VIEW", "VALUES", "PIVOT", "UNPIVOT", "QUALIFY", "OFFSET"),
}
_BEFORE_TABLES: Final = {
    "LATERAL",
    "SELECT",
    "WITH",
    "VALUES",
}  # Any other word where a table may stand is a table's name, even a keyword such as order.
_KEEPS_STATE: Final = {
    *("GROUP", "DISTINCT", "JOIN", "HAVING", "OVER", "LIMIT", "INTERSECT", "EXCEPT", "MINUS", "ORDER", "PIVOT"),
}
_AGGREGATES: Final = {
    *("COUNT", "SUM", "AVG", "MEAN", "MIN", "MAX", "COLLECT_LIST", "COLLECT_SET", "FIRST", "LAST", "ANY_VALUE"),
    *("APPROX_COUNT_DISTINCT", "APPROX_PERCENTILE", "PERCENTILE", "STDDEV", "VARIANCE", "MAX_BY", "MIN_BY", "COUNT_IF"),
    *("SESSION_WINDOW", "BOOL_AND", "BOOL_OR", "EVERY", "SOME", "MEDIAN", "MODE", "ARRAY_AGG", "LISTAGG", "STRING_AGG"),
}
_UNREPEATABLE: Final = {"RAND", "RANDOM", "RANDN", "UUID", "SHUFFLE", "MONOTONICALLY_INCREASING_ID"}
_SEEDED: Final = {"RAND", "RANDOM", "RANDN"}  # With a seed they give the same values each time.
_BY_EVERY_COLUMN: Final = {"NATURAL", "PIVOT", "UNPIVOT", "TABLE"}
_BEFORE_STAR: Final = {"SELECT", "DISTINCT", "ALL", ",", "(", "."}
_BEFORE_QUERY: Final = {"(", "ALL", "DISTINCT", "UNION", "EXCEPT", "INTERSECT", "MINUS"}
_OPENS: Final = {"(": ")", "[": "]", "{": "}"}


class SqlToken(NamedTuple):
    kind: str
    text: str
    line: int

    @property
    def word(self) -> str:
        """A keyword or a sign in upper case; empty for a quoted text."""
        return self.text.upper() if self.kind in ("word", "sign") else ""


class QueryName(NamedTuple):
    name: str
    line: int


@dataclass(frozen=True)
class Query:
    tables: tuple[QueryName, ...]
    """The sources and steps that the query names, each with the line of its first mention."""
    keeps_state: bool
    unrepeatable: tuple[QueryName, ...]
    """Functions that give other values when a batch is repeated."""
    takes_every_column: bool
    """Whether columns that the query does not name may be used; true when in doubt."""


def read_query(query: str) -> Query:
    """Raises Unfit, with the line, if the text cannot be one query."""
    tokens = list(_tokens(query))
    if tokens and tokens[-1].text == ";":
        tokens.pop()
    _check(tokens)
    defined = _defined(tokens)
    tables: dict[str, QueryName] = {}
    for table in _tables(tokens):
        if table.name.lower() not in defined:
            tables.setdefault(table.name.lower(), table)
    return Query(
        tuple(tables.values()), _keeps_state(tokens), tuple(_unrepeatable(tokens)), _takes_every_column(tokens)
    )


def normal_query(query: str) -> str:
    """The query without comments and with single blanks, so that its layout does not change the hash."""
    parts: list[str] = []
    for match in _TOKEN.finditer(query):
        if match.lastgroup != "blank":
            parts.append(match[0])
        elif parts and parts[-1] != " ":
            parts.append(" ")
    return "".join(parts).strip().removesuffix(";").rstrip()


def _tokens(query: str) -> Iterator[SqlToken]:
    line = 0
    for match in _TOKEN.finditer(query):
        kind = match.lastgroup or "sign"
        if kind != "blank":
            yield SqlToken(kind, match[0], line)
        line += match[0].count("\n")


def _check(tokens: list[SqlToken]) -> None:
    if not tokens:
        raise Unfit("a query", "the query is empty")
    if tokens[0].word not in _BEGINS:
        raise Unfit(
            "a query, which begins with SELECT or WITH",
            f"a step is one query, which begins with SELECT or WITH, not with {tokens[0].text}",
            line_in_text=tokens[0].line,
        )
    open_brackets: list[SqlToken] = []
    for token in tokens:
        if token.word == ";":
            raise Unfit("one query", "a step is one query; put the next one into a step of its own", (), token.line)
        if token.word in ("'", '"', "`"):
            raise Unfit("closed quotes", f"the quote {token.text} is never closed", (), token.line)
        if token.word in _OPENS:
            open_brackets.append(token)
        elif token.word in _OPENS.values():
            if not open_brackets or _OPENS[open_brackets[-1].text] != token.text:
                raise Unfit("matching brackets", f"the bracket {token.text} closes nothing", (), token.line)
            open_brackets.pop()
    if open_brackets:
        opened = open_brackets[-1]
        raise Unfit("matching brackets", f"the bracket {opened.text} is never closed", (), opened.line)


def _defined(tokens: list[SqlToken]) -> set[str]:
    """The names that WITH defines: NAME AS (SELECT, or NAME (columns) AS (SELECT."""
    names = set[str]()
    for place in range(1, len(tokens) - 2):
        if [token.word for token in tokens[place : place + 2]] == ["AS", "("] and tokens[place + 2].word in _BEGINS:
            named = place - 1
            if tokens[named].word == ")":
                while tokens[named].word != "(":
                    named -= 1
                named -= 1
            names.add(_unquoted(tokens[named]).lower())
    return names


def _tables(tokens: list[SqlToken]) -> Iterator[QueryName]:
    calls: list[tuple[str, bool]] = []  # For every open bracket: the word before it, and whether tables were listed.
    listing = expecting = False
    place = 0
    while place < len(tokens):
        token = tokens[place]
        before = tokens[place - 1].word if place else ""
        if token.word == "(":
            calls.append((before, listing))
            listing = expecting = expecting and before not in _FROM_IS_AN_ARGUMENT
        elif token.word == ")":
            _, listing = calls.pop() if calls else ("", False)
            expecting = False
        elif token.word == "FROM":
            inside = calls[-1][0] if calls else ""
            listing = expecting = before != "DISTINCT" and inside not in _FROM_IS_AN_ARGUMENT
        elif token.word == "JOIN" or (token.word == "," and listing):
            listing = expecting = True
        elif expecting and token.kind in ("word", "quoted") and token.word not in _BEFORE_TABLES:
            expecting = False
            end = place + 1
            while end + 1 < len(tokens) and tokens[end].text == ".":
                end += 2
            called = end < len(tokens) and tokens[end].text == "("
            if end == place + 1 and not called:
                yield QueryName(_unquoted(token), token.line)
            place = end - 1
        elif token.word in _AFTER_TABLES:
            listing = expecting = False
        place += 1


def _keeps_state(tokens: list[SqlToken]) -> bool:
    words = {token.word for token in tokens}
    calls = {token.word for token, after in pairwise(tokens) if after.text == "("}
    return bool(words & _KEEPS_STATE or calls & _AGGREGATES)


def _unrepeatable(tokens: list[SqlToken]) -> Iterator[QueryName]:
    for token, opened, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token.word in _UNREPEATABLE and opened.text == "(" and not (token.word in _SEEDED and after.text != ")"):
            yield QueryName(token.text, token.line)


def _takes_every_column(tokens: list[SqlToken]) -> bool:
    """Whether the query reads all columns of a table: it has a star that is neither a product nor in count(*), a
    keyword that applies to all columns, or a FROM without a SELECT."""
    words = ["(", "(", *(token.word for token in tokens)]  # The loop needs two words before the first one.
    if _BY_EVERY_COLUMN.intersection(words) or ("|", ">") in pairwise(words):
        return True
    for earlier, before, word in zip(words, words[1:], words[2:], strict=False):
        if word == "*" and before in _BEFORE_STAR and (earlier, before) != ("COUNT", "("):
            return True
        if word == "FROM" and before in _BEFORE_QUERY:
            return True
    return False


def _unquoted(token: SqlToken) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text
