"""Mistakes in a pipeline: each with its file and line, the value and what is allowed, and all reported together."""

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Path = tuple[str | int, ...]
"""The path of a value in a document: ("source", "orders", "topic"), ("step", 0, "sql")."""


class FileLine(NamedTuple):
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class LineFinder(Protocol):
    """Knows the lines on which the parts of a document were written."""

    def of(self, path: Path, line_in_text: int = 0) -> FileLine:
        """The nearest line known; `line_in_text` counts lines inside a multi-line text from 0."""


@dataclass(frozen=True)
class Problem:
    place: FileLine
    key: str
    value: object
    """The value that was given; None if none was."""
    told: str
    allowed: str

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {shown_value(self.value)}"
        subject = f"{self.key}{value}: " if self.key else ""
        return f"{self.place}: {subject}{self.told}"


class InvalidPipeline(ValueError):
    """All mistakes in a pipeline, in the order of their lines."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.place, problem.key, problem.told)))
        super().__init__("\n".join(map(str, self.problems)))


class Unfit(ValueError):
    """A value that a key does not take; `at` is the path from the key's value to the wrong part of it."""

    def __init__(self, allowed: str, told: str = "", at: Path = (), line_in_text: int = 0) -> None:
        self.allowed = allowed
        self.told = told or f"expected {allowed}"
        self.at = at
        self.line_in_text = line_in_text
        super().__init__(self.told)


class SecretFound(Unfit):
    """The value holds a secret and must not be printed."""


class Findings:
    """Collects problems while a document is read."""

    def __init__(self, places: LineFinder) -> None:
        self._places = places
        self.problems: list[Problem] = []

    def add(self, path: Path, value: object, told: str, allowed: str = "", line_in_text: int = 0) -> None:
        place = self._places.of(path, line_in_text)
        self.problems.append(Problem(place, shown_path(path), value, told, allowed))

    def add_unfit(self, path: Path, value: object, unfit: Unfit) -> None:
        for part in unfit.at:
            value = _part(value, part)
        self.add(path + unfit.at, value, unfit.told, unfit.allowed, unfit.line_in_text)


def _part(value: object, part: str | int) -> object:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, list | tuple) and isinstance(part, int) and part < len(value):
        return value[part]
    return None


def shown_path(path: Path) -> str:
    """`source.orders.topic`, `step[1].sql`: steps are counted from 1, as their names are."""
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown_value(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A hint for the end of a message; empty if no known name is similar."""
    by_folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(given.lower(), by_folded, 1)
    return f"; did you mean {by_folded[near[0]]}?" if near else ""


def listed(names: Iterable[str], last: str = "or") -> str:
    """The names as a list in a sentence: `a, b or c`."""
    words = list(names)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}" if words else "none"
