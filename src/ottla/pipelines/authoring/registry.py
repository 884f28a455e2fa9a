"""Pipelines in Python: calls and decorators that record a pipeline and run nothing.

    shop = Declaration("orders-per-minute", dead_letter="orders-dlq")
    shop.source("orders", topic="orders", parse="json", schema="city STRING, total DOUBLE, event_time TIMESTAMP")

    @shop.sql(watermark={"column": "event_time", "delay": "2 minutes"})
    def per_minute() -> str:
        return "SELECT window(event_time, '1 minute') AS w, city, count(*) AS n FROM orders GROUP BY 1, 2"

    shop.sink("per_minute", topic="orders-per-minute", key="city")

Rule 1: keys, values and validation are those of the TOML file. `build` returns the spec that the file would give, or
        raises all mistakes, each with the line of the call that made it.
Rule 2: decorators return the function unchanged. The spec has its name, `functions` the function itself.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.pipelines.authoring.files import PipelineFiles
from ottla.pipelines.authoring.reader import read_pipeline
from ottla.pipelines.spec.model import Pipeline
from ottla.pipelines.spec.problems import FileLine, InvalidPipeline, Path, Problem, shown_path

F = TypeVar("F", bound=Callable[..., Any])


class Declaration:
    """A pipeline that is being declared; `build` returns its spec."""

    def __init__(
        self, name: str, *, dead_letter: str | None = None, max_rate: float | None = None, **keys: Any
    ) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}
        self._lines: dict[Path, FileLine] = {(): _caller()}
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
        """Add a step that decorates no function: dedup, a watermark, a model, or code named as MODULE:NAME."""
        self._step(keys, _caller())

    def sql(self, **keys: Any) -> Callable[[Callable[[], str]], Callable[[], str]]:
        """The decorated function returns the query. The step has the function's name unless `name` is given."""

        def decorate(function: Callable[[], str]) -> Callable[[], str]:
            self._step({"name": function.__name__, "sql": function(), **keys}, _line_of(function))
            return function

        return decorate

    def python(self, **keys: Any) -> Callable[[F], F]:
        """The decorated function takes and returns an iterator of batches."""
        return self._code("python", keys)

    def stateful(self, **keys: Any) -> Callable[[F], F]:
        """The decorated class is a StatefulProcessor of Spark."""
        return self._code("stateful", keys)

    def train(self, **keys: Any) -> Callable[[F], F]:
        """The decorated function trains a model on the rows and returns its results."""
        return self._code("train", keys)

    def build(self) -> Pipeline:
        """Check the declared pipeline and return its spec. Raises InvalidPipeline with every mistake."""
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
            told = f"there is already a {part} with this name"
            self._faults.append(Problem(_caller(3), shown_path(path), None, told, ""))
            return
        self._lines[path] = _caller(3)
        tables[name] = _plain(keys)

    def _step(self, keys: dict[str, Any], place: FileLine) -> None:
        self._lines[("step", len(self._steps))] = place
        self._steps.append(_plain(keys))

    def _code(self, kind: str, keys: dict[str, Any]) -> Callable[[F], F]:
        place = _caller(3)

        def decorate(function: F) -> F:
            reference = reference_to(function)
            name = function.__name__
            if "<" in reference:  # A lambda, or defined inside a function.
                path: Path = ("step", len(self._steps), kind)
                told = "must be at the top level of a module, so that Spark's workers can import it"
                self._faults.append(Problem(place, shown_path(path), function.__qualname__, told, ""))
                name = name if name.isidentifier() else f"step_{len(self._steps) + 1}"
                reference = f"{function.__module__}:{name}"
            self.functions[reference] = function
            self._step({"name": name, kind: reference, **keys}, place)
            return function

        return decorate


def reference_to(function: Callable[..., Any]) -> str:
    """MODULE:NAME of a function. A function of the script that runs is named by the script's file."""
    module = function.__module__
    if module == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None) or "__main__"
        module = os.path.splitext(os.path.basename(file))[0]
    return f"{module}:{function.__qualname__}"


class _CallPlaces:
    def __init__(self, lines: dict[Path, FileLine]) -> None:
        self._lines = lines

    def of(self, path: Path, line_in_text: int = 0) -> FileLine:  # noqa: ARG002 - only the call's line is known
        while path not in self._lines:
            path = path[:-1]
        return self._lines[path]


class _WithFunctions(PipelineFiles):
    """The files of a pipeline that is declared in Python: the decorated functions are known without reading files."""

    def __init__(self, file: str, functions: dict[str, Callable[..., Any]]) -> None:
        super().__init__(os.path.dirname(file))
        self._functions = functions

    def reference_fault(self, reference: str) -> str:
        return "" if reference in self._functions else super().reference_fault(reference)


def _caller(depth: int = 2) -> FileLine:
    frame = sys._getframe(depth)
    return FileLine(frame.f_code.co_filename, frame.f_lineno)


def _line_of(function: Callable[..., Any]) -> FileLine:
    return FileLine(function.__code__.co_filename, function.__code__.co_firstlineno)


def _given(**keys: object) -> dict[str, object]:
    return {name: value for name, value in keys.items() if value is not None}


def _plain(keys: dict[str, Any]) -> dict[str, Any]:
    """The keys without those that are None: None means that a key is left out."""
    return {name: value for name, value in keys.items() if value is not None}
