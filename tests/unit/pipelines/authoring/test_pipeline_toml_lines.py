"""Lines of TOML values: held against tomllib, which says what there is, and texts whose lines are known."""

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.pipelines.authoring.toml_lines import find_lines
from ottla.pipelines.spec.problems import Path

TEXT = '''\
# name = "not this one"
name = "a # b"
"quoted key".'and.this' = 1
[source.orders]
topic = ["a", # ]
  "b]",
  { x = 1, y.z = [2] } ]
sql = """
SELECT \\"\\"\\"
FROM t"""
[[step]]
name = 'first'
[[step]]
name = "second"
mark = { column = "c", delay = """x""" }
[step.more]
at = 2026-11-15 20:44:46
five = """"two quotes inside"""""
[[step.inner]]
n = 1
[[step.inner]]
n = 2
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 2),
        (("quoted key", "and.this"), 3),
        (("source",), 4),
        (("source", "orders"), 4),
        (("source", "orders", "topic"), 5),
        (("source", "orders", "topic", 1), 6),
        (("source", "orders", "topic", 2, "y", "z", 0), 7),
        (("source", "orders", "sql"), 8),
        (("step", 0, "name"), 12),
        (("step", 1), 13),
        (("step", 1, "mark", "delay"), 15),
        (("step", 1, "more", "at"), 17),
        (("step", 1, "more", "five"), 18),
        (("step", 1, "inner", 0, "n"), 20),
        (("step", 1, "inner", 1, "n"), 22),
    ],
)
def test_every_value_has_its_line(path: Path, line: int) -> None:
    assert find_lines(TEXT)[path].line == line
    assert find_lines(TEXT.replace("\n", "\r\n"))[path].line == line


def test_lines_inside_a_text_count_from_its_first_unless_escapes_hide_some() -> None:
    spots = find_lines('a = """\nx\ny"""\nb = """x\ny"""\nc = """\\\n  x"""\nd = \'\'\'\n\\n\'\'\'')
    assert [(spots[(key,)].text_line, spots[(key,)].lines_count) for key in "abcd"] == [
        (2, True),
        (4, True),
        (6, False),
        (9, True),
    ]


KEYS = st.one_of(st.sampled_from(["a", "b-1", "topic"]), st.text(st.characters(codec="utf-8"), max_size=4))
SCALARS = st.one_of(
    st.integers(-9, 9), st.booleans(), st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


def _quoted(text: str) -> str:
    return '"' + "".join(_escaped(one) for one in text) + '"'


def _escaped(one: str) -> str:
    return f"\\U{ord(one):08x}" if one in '"\\' or ord(one) < 32 or ord(one) == 127 else one


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return _quoted(value)
        case list():
            return "[" + ",\n # ] \n".join(map(_toml, value)) + "\n]"
        case dict():
            return "{" + ", ".join(f"{_quoted(key)} = {_toml(one)}" for key, one in value.items()) + "}"
    return str(value)


def _paths(value: object, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _paths(one, (*path, key))
    if isinstance(value, list):
        for place, one in enumerate(value):
            yield from _paths(one, (*path, place))


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=4), st.dictionaries(KEYS, st.lists(VALUES, min_size=1, max_size=2)))
def test_whatever_tomllib_reads_has_a_line_and_nothing_else_has(
    tables: dict[str, object], repeated: dict[str, list[object]]
) -> None:
    """A path without a line would be told of at the wrong place; one too many shows that the reading went astray."""
    text = "".join(f"{_quoted(key)} = {_toml(value)} # end\n" for key, value in tables.items())
    for key, values in repeated.items():
        for value in values:
            text += f"[[ {_quoted('r' + key)} ]]\n\tv = {_toml(value)}\n" if "r" + key not in tables else ""
    assert set(find_lines(text)) == set(_paths(tomllib.loads(text)))
