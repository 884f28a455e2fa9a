"""Pipelines in Python: calls and decorators that write a pipeline down, and run nothing.

    shop = Declaration("orders-per-minute", dead_letter="orders-dlq")
    shop.source("orders", topic="orders", parse="json", schema="city STRING, total DOUBLE, event_time TIMESTAMP")

    @shop.sql(watermark={"column": "event_time", "delay": "2 minutes"})
    def per_minute() -> str:
        return "SELECT window(event_time, '1 minute') AS w, city, count(*) AS n FROM orders GROUP BY 1, 2"

    shop.sink("per_minute", topic="orders-per-minute", key="city")

Rule 1: keys and values are those of the TOML file, and so is the validation: `build` gives the spec that the file
        would, or tells of every mistake with the line of the call it was made in.
Rule 2: a decorated function stays what it was. The spec has its name, `functions` the function itself.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.pipelines.files import Beside
from ottla.pipelines.problems import InvalidPipeline, Path, Place, Problem, shown_path
from ottla.pipelines.reader import read_pipeline
from ottla.pipelines.spec import Pipeline

F = TypeVar("F", bound=Callable[..., Any])


class Declaration:
    """A pipeline that is being written down; `build` makes the spec of it."""

    def __init__(
        self, name: str, *, dead_letter: str | None = None, max_rate: float | None = None, **keys: Any
    ) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}
        self._lines: dict[Path, Place] = {(): _caller()}
        self._faults: list[Problem] = []
        self._sources: dict[str, object] = {}
        self._steps: list[dict[str, Any]] = []
        self._sinks: dict[str, object] = {}
        errors = _given(dead_letter=dead_letter, max_rate=max_rate)
        self._keys: dict[str, object] = {"name": name, **keys} | ({"errors": errors} if errors else {})

    def source(self, name: str, **keys: Any) -> None:
        self._named("source", self._sources, name, keys)

    def sink(self, name: str, **keys: Any) -> None:
        self._named("sink", self._sinks, name, keys)

    def step(self, **keys: Any) -> None:
        """A step without code of its own: dedup, a watermark, a model; or one that names code elsewhere."""
        self._step(keys, _caller())

    def sql(self, **keys: Any) -> Callable[[Callable[[], str]], Callable[[], str]]:
        """The decorated function gives the query; the step has its name unless another is given."""

        def decorate(function: Callable[[], str]) -> Callable[[], str]:
            self._step({"name": function.__name__, "sql": function(), **keys}, _line_of(function))
            return function

        return decorate

    def python(self, **keys: Any) -> Callable[[F], F]:
        """The decorated function takes an iterator of batches and gives one."""
        return self._code("python", keys)

    def stateful(self, **keys: Any) -> Callable[[F], F]:
        """The decorated class is a stateful processor of Spark's."""
        return self._code("stateful", keys)

    def train(self, **keys: Any) -> Callable[[F], F]:
        """The decorated function trains a model on the rows and gives its results."""
        return self._code("train", keys)

    def build(self) -> Pipeline:
        """Raises InvalidPipeline with every mistake."""
        document = dict(self._keys)
        document["source"], document["sink"] = self._sources, self._sinks
        if self._steps:
            document["step"] = self._steps
        outside = _WithFunctions(self._lines[()].file, self.functions)
        try:
            pipeline = read_pipeline(document, _CallPlaces(self._lines), outside)
        except InvalidPipeline as invalid:
            raise InvalidPipeline([*self._faults, *invalid.problems]) from None
        if self._faults:
            raise InvalidPipeline(self._faults)
        return pipeline

    def _named(self, part: str, tables: dict[str, object], name: str, keys: dict[str, Any]) -> None:
        path: Path = (part, name)
        if name in tables:
            told = f"there is a {part} of this name already"
            self._faults.append(Problem(_caller(3), shown_path(path), None, told, ""))
            return
        self._lines[path] = _caller(3)
        tables[name] = _plain(keys)

    def _step(self, keys: dict[str, Any], place: Place) -> None:
        self._lines[("step", len(self._steps))] = place
        self._steps.append(_plain(keys))

    def _code(self, kind: str, keys: dict[str, Any]) -> Callable[[F], F]:
        place = _caller(3)

        def decorate(function: F) -> F:
            reference = reference_to(function)
            name = function.__name__
            if "<" in reference:  # A lambda, or defined inside a function.
                path: Path = ("step", len(self._steps), kind)
                told = "must be at the top level of a module, or the workers cannot find it"
                self._faults.append(Problem(place, shown_path(path), function.__qualname__, told, ""))
                name = name if name.isidentifier() else f"step_{len(self._steps) + 1}"
                reference = f"{function.__module__}:{name}"
            self.functions[reference] = function
            self._step({"name": name, kind: reference, **keys}, place)
            return function

        return decorate


def reference_to(function: Callable[..., Any]) -> str:
    """MODULE:NAME. What was run as a script is imported under its file's name elsewhere."""
    module = function.__module__
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None) or "__main__"
        module = os.path.splitext(os.path.basename(file))[0]
    return f"{module}:{function.__qualname__}"


class _CallPlaces:
    def __init__(self, lines: dict[Path, Place]) -> None:
        self._lines = lines

    def of(self, path: Path, line_in_text: int = 0) -> Place:  # noqa: ARG002 - the call's line is all that is known
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]


class _WithFunctions(Beside):
    """Functions that are at hand need not be looked for."""

    def __init__(self, file: str, functions: dict[str, Callable[..., Any]]) -> None:
        super().__init__(os.path.dirname(file))
        self._functions = functions

    def reference_fault(self, reference: str) -> str:
        return "" if reference in self._functions else super().reference_fault(reference)


def _caller(depth: int = 2) -> Place:
    frame = sys._getframe(depth)
    return Place(frame.f_code.co_filename, frame.f_lineno)


def _line_of(function: Callable[..., Any]) -> Place:
    return Place(function.__code__.co_filename, function.__code__.co_firstlineno)


def _given(**keys: object) -> dict[str, object]:
    return {name: value for name, value in keys.items() if value is not None}


def _plain(keys: dict[str, Any]) -> dict[str, Any]:
    """Keys left at None are keys left out."""
    return {name: value for name, value in keys.items() if value is not None}
