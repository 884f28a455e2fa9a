"""Pipelines in TOML files, with schema files beside them and the code that steps refer to.

Paths in a pipeline are relative to the directory of its file. Code is looked for there first, then where Python finds
packages. It is parsed and not run.
"""

import ast
import os
import re
import sys
import tomllib
from importlib.machinery import ModuleSpec, PathFinder
from typing import Final

from ottla.pipelines.authoring.reader import read_pipeline
from ottla.pipelines.authoring.toml_lines import TextPosition, find_lines
from ottla.pipelines.spec.model import Pipeline
from ottla.pipelines.spec.problems import FileLine, InvalidPipeline, Path, Problem, did_you_mean

_BARE: Final = re.compile(r"([\w.-]+)\s*=\s*(?!(?:true|false|inf|nan)\b)([A-Za-z][^\s#\"'\[{,]*)\s*(?:#|$)")
"""A value that lacks its quotes."""


def load_toml(path: str) -> Pipeline:
    """The pipeline in a TOML file. Raises OSError, and InvalidPipeline with every mistake in it."""
    with open(path, "rb") as file:
        return parse_toml(file.read(), path)


def parse_toml(data: bytes, path: str) -> Pipeline:
    """The pipeline in a TOML text. `path` is named in mistakes, and other files are looked for in its directory."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidPipeline(
            [Problem(FileLine(path, line), "", None, "is not UTF-8, which TOML is", "UTF-8")]
        ) from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidPipeline([_syntax(error, text, path)]) from None
    return read_pipeline(document, TomlPlaces(path, find_lines(text)), PipelineFiles(os.path.dirname(path)))


def _syntax(error: tomllib.TOMLDecodeError, text: str, path: str) -> Problem:
    """The problem for a TOML syntax error. Its line is in the message of tomllib: `... (at line 3, column 7)` or
    `... (at end of document)`."""
    told, _, where = str(error).rpartition(" (at ")
    digits = where.removeprefix("line ").partition(",")[0]
    line = int(digits) if digits.isdecimal() else max(1, len(text.splitlines()))
    written = "".join(text.splitlines()[line - 1 : line]).strip()
    bare = _BARE.match(written)
    hint = f'; texts need quotes: {bare[1]} = "{bare[2]}"' if bare is not None else ""
    return Problem(FileLine(path, line), "", None, f"{written} is not TOML: {told or error}{hint}", "TOML")


class TomlPlaces:
    def __init__(self, file: str, spots: dict[Path, TextPosition]) -> None:
        self._file = file
        self._spots = spots

    def of(self, path: Path, line_in_text: int = 0) -> FileLine:
        if path in self._spots:
            spot = self._spots[path]
            return FileLine(
                self._file, spot.text_line + line_in_text if line_in_text and spot.lines_count else spot.line
            )
        return self.of(path[:-1]) if path else FileLine(self._file, 1)


class PipelineFiles:
    """The files in the directory of a pipeline's file."""

    def __init__(self, directory: str) -> None:
        self._directory = directory or "."

    def read_text(self, path: str) -> str:
        with open(os.path.join(self._directory, path), encoding="utf-8") as file:
            return file.read()

    def reference_fault(self, reference: str) -> str:
        module, _, name = reference.partition(":")
        found = self._find(module)
        if found is None:
            return f"there is no module {module}, neither in {self._directory} nor where Python looks for packages"
        if found.origin is None or not found.origin.endswith(".py"):
            return ""  # A compiled module or a namespace: only an import could tell.
        try:
            with open(found.origin, "rb") as file:
                tree = ast.parse(file.read(), found.origin)
        except (OSError, SyntaxError, ValueError) as error:
            return f"{found.origin} cannot be read as Python: {error}"
        names = _defined(tree)
        top = name.partition(".")[0]
        if top in names or "*" in names or "__getattr__" in names:
            return ""
        return f"{found.origin} defines no {top}{did_you_mean(top, names)}"

    def _find(self, module: str) -> ModuleSpec | None:
        """Find a module without importing it or its parent packages."""
        where: list[str] | None = [self._directory, *sys.path]
        found = None
        name = ""
        for part in module.split("."):
            name = f"{name}.{part}" if name else part
            found = PathFinder.find_spec(name, where)
            if found is None:
                return None
            where = list(found.submodule_search_locations or [])
        return found


def _defined(tree: ast.AST) -> list[str]:
    """The names that a module defines at its top level, including imports and what is inside `if` and `try`."""
    names = []
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.append(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names += [alias.asname or alias.name.partition(".")[0] for alias in aliases]
            case ast.Name(id=name, ctx=ast.Store()):
                names.append(name)
            case _:
                names += _defined(node)
    return names
