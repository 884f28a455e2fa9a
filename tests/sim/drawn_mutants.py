"""Single changes of the source, drawn by a seed: what somebody might have got wrong.

Every place of a module where a small change still compiles is one mutant: a condition negated or its bound moved, an
operand of `and` or `or` left out, a statement left out, a number off by one, `min` for `max`, True for False. Places
that change no behaviour are left alone: docstrings, annotations, what is only told (`trace`, `warn`), asserts, the text
of errors.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from random import Random
from types import CodeType, ModuleType
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "src" / "ottla"
AREAS = ("core", "broker", "storage", "rpc", "client")
ONLY_TOLD = ("trace", "warn", "note")
_BOUNDS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


class Place(NamedTuple):
    """A node of the tree, and what to put in its place."""

    line: int
    before: str
    after: str
    change: Callable[[ast.Module], None]
    """Changes a copy of the tree."""


class Drawn(NamedTuple):
    module: str
    number: int
    """Of the place in its module."""
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before}  =>  {self.after}"


def draw(seed: int, count: int, areas: Sequence[str] = AREAS) -> list[Drawn]:
    """Each place is as likely as any other, and drawn once."""
    everything = [mutant for module in modules(areas) for mutant in mutants_of(module)]
    return Random(seed).sample(everything, min(count, len(everything)))


def modules(areas: Sequence[str]) -> list[str]:
    found = sorted(path for area in areas for path in (PACKAGE / area).rglob("*.py") if path.name != "__init__.py")
    return [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in found]


def mutants_of(module: str) -> list[Drawn]:
    return [
        Drawn(module, number, place.line, place.before, place.after)
        for number, place in enumerate(_places(ast.parse(_path_of(module).read_text())))
    ]


def _path_of(module: str) -> Path:
    return (PACKAGE.parent / module.replace(".", "/")).with_suffix(".py")


# Where something can be changed.


def _places(tree: ast.Module) -> list[Place]:
    places: list[Place] = []
    for steps, node in _walk(tree):
        for changed in _changes(node):
            before, after = _shown(node), "pass" if isinstance(changed, ast.Pass) else _shown(changed)
            if before != after:
                places.append(Place(getattr(node, "lineno", 0), before, after, _replacing(steps, changed)))
    return places


Steps = tuple[tuple[str, int | None], ...]


def _walk(tree: ast.Module) -> Iterator[tuple[Steps, ast.AST]]:
    """The nodes inside functions, with the way to them."""
    pending: list[tuple[Steps, ast.AST, bool]] = [((), tree, False)]
    while pending:
        steps, node, is_inside = pending.pop(0)
        if _changes_nothing(node):
            continue
        if is_inside:
            yield steps, node
        inside = is_inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            inside = False  # What is never set is found by whoever looks for it.
        for name, value in ast.iter_fields(node):
            if name in ("returns", "annotation", "decorator_list", "args", "bases", "keywords_of_class"):
                continue
            if isinstance(value, list):
                pending += [
                    ((*steps, (name, at)), one, inside) for at, one in enumerate(value) if isinstance(one, ast.AST)
                ]
            elif isinstance(value, ast.AST):
                pending.append(((*steps, (name, None)), value, inside))


def _changes_nothing(node: ast.AST) -> bool:
    """What is told, never done: docstrings, traces, asserts, errors and how they are worded, how things are shown."""
    if isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr):
        return True
    if isinstance(node, ast.FunctionDef) and node.name in ("__repr__", "__str__"):
        return True
    if isinstance(node, ast.Expr):
        if isinstance(node.value, ast.Constant):
            return True
        call = node.value
        if isinstance(call, ast.Call):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            return name in ONLY_TOLD
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.If() | ast.While() | ast.IfExp():
            if not isinstance(node.test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
                changed = deepcopy(node)
                changed.test = ast.UnaryOp(ast.Not(), node.test)
                yield changed
        case ast.UnaryOp(op=ast.Not()):
            yield deepcopy(node.operand)
        case ast.Compare(ops=[op]):
            yield _compared(node, _BOUNDS.get(type(op)) or _OPPOSITES[type(op)])
        case ast.BoolOp():
            yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), deepcopy(node.values))
            for left_out in range(len(node.values)):
                kept = [deepcopy(one) for at, one in enumerate(node.values) if at != left_out]
                yield kept[0] if len(kept) == 1 else ast.BoolOp(deepcopy(node.op), kept)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int()):
            yield ast.Constant(node.value + 1)
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
            yield deepcopy(node.left)
        case ast.Call(func=ast.Name(id="min" | "max")):
            changed_call = deepcopy(node)
            changed_call.func = ast.Name("max" if node.func.id == "min" else "min", ast.Load())
            yield changed_call
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Continue() | ast.Break():
            yield ast.Pass()


def _compared(node: ast.Compare, op: type[ast.cmpop]) -> ast.Compare:
    changed = deepcopy(node)
    changed.ops = [op()]
    return changed


def _replacing(steps: Steps, changed: ast.AST) -> Callable[[ast.Module], None]:
    def change(tree: ast.Module) -> None:
        holder: ast.AST = tree
        for name, at in steps[:-1]:
            found = getattr(holder, name)
            holder = found if at is None else found[at]
        name, at = steps[-1]
        if at is None:
            setattr(holder, name, changed)
        else:
            getattr(holder, name)[at] = changed

    return change


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node).splitlines()
    return text[0] if len(text) == 1 else f"{text[0]} ..."


# Importing one.


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, drawn: Drawn, path: str) -> None:
        super().__init__(drawn.module, path)
        self._drawn = drawn

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the one module there is
        tree = ast.parse(self.get_data(self.path))
        _places(tree)[self._drawn.number].change(tree)
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, drawn: Drawn) -> None:
        self._drawn = drawn

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._drawn.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        return importlib.util.spec_from_loader(fullname, _Loader(self._drawn, spec.origin))


def install(drawn: Drawn) -> None:
    """From now on the module is imported with the change; the file stays as it is."""
    sys.meta_path.insert(0, _Finder(drawn))
