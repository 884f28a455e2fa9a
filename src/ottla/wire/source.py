"""Builds the Python source of a codec: its lines, the objects they use, and a label with the field for each line.

The labels serve error messages: if a codec fails, the label of the failing line names the field.
"""

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any


class CodeWriter:
    """Source code under construction."""

    def __init__(self, name: str, arguments: str) -> None:
        self.name = name
        self._filename = f"<ottla.wire {name}>"
        self._lines = [f"def codec({arguments}):\n"]
        self._labels = [""]
        self._names: dict[tuple[str, int | str], str] = {}
        self._scope: dict[str, Any] = {}
        self._depth = 1
        self._counter = 0

    def add(self, line: str, label: str) -> None:
        self._lines.append("    " * self._depth + line + "\n")
        self._labels.append(label)

    @contextmanager
    def block(self, opening: str, label: str) -> Iterator[None]:
        self.add(opening + ":", label)
        self._depth += 1
        yield
        self._depth -= 1

    def variable(self, hint: str) -> str:
        """A name no other part of the source uses."""
        self._counter += 1
        return f"{hint}_{self._counter}"

    def constant(self, hint: str, value: object, key: int | str | None = None) -> str:
        """The name under which the source finds a value; values with the same `key` share it."""
        identity = (hint, id(value) if key is None else key)
        if identity not in self._names:
            self._names[identity] = name = f"{hint}_{len(self._names)}"
            self._scope[name] = value
        return self._names[identity]

    def compile(self) -> "Compiled":
        text = "".join(self._lines)
        exec(compile(text, self._filename, "exec"), self._scope)
        # No modification time: the entry is never checked against a file.
        linecache.cache[self._filename] = (len(text), None, self._lines, self._filename)
        return Compiled(self._scope["codec"], self._filename, tuple(self._labels))


class Compiled:
    """A compiled codec; `field_at` names the field of a line that failed."""

    __slots__ = ("_filename", "_labels", "run")

    def __init__(self, run: Callable[..., Any], filename: str, labels: tuple[str, ...]) -> None:
        self.run = run
        self._filename = filename
        self._labels = labels

    def field_at(self, traceback: TracebackType | None) -> str:
        label = ""
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self._filename:
                label = self._labels[traceback.tb_lineno - 1]
            traceback = traceback.tb_next
        return label
