"""A setting either has an effect or says that it has none: the code is read to find out."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ottla.config.notation import Setting
from ottla.config.registry import AREAS

PACKAGE = Path(__file__).parents[3] / "src" / "ottla"
DECLARED = {name: value for area in AREAS for name, value in vars(area).items() if isinstance(value, Setting)}
# Modules of ottla.config that read values and do not declare them.
READERS = {"config.py", "listeners.py"}


@cache
def _read() -> set[str]:
    """Constants of settings that code outside the declarations names."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name != "config" or path.name in READERS:
            found |= set(_names(ast.parse(path.read_text())))
    return found & set(DECLARED)


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _read_through_others(read: set[str]) -> set[str]:
    """What stands in for, overrules or bounds a setting that is read has its effect through that."""
    through = set()
    for setting in (DECLARED[name] for name in read):
        through |= {fallback for fallback, _ in setting.falls_back_to}
        through |= {one for one in (setting.overruled_by, setting.below, setting.not_below) if one}
    return {name for name, setting in DECLARED.items() if setting in through}


def test_what_code_reads_is_not_marked_as_without_effect() -> None:
    marked = {name for name in _read() if DECLARED[name].inert}
    assert marked == set(), "these have an effect now: take `inert` out of their declarations"


def test_what_no_code_reads_is_marked_as_without_effect() -> None:
    read = _read()
    unmarked = {name for name, setting in DECLARED.items() if not setting.inert} - read - _read_through_others(read)
    assert unmarked == set(), "nothing reads these: mark them with `inert` and the reason"
