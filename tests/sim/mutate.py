"""Take one safety check out of the code and see whether the simulator notices; or a unit test, where it says which.

A mutant is one change of one module. It is planted in the running process: the functions that the change concerns get
the changed code, and their own afterwards. What cannot be planted that way, because it is decided when a module is
imported, is played in a process of its own: `python tests/sim/mutate.py NAME [WORLD]` plays the mutant's seeds and ends
with 0 when one of them fails, with 1 when the mutant survives. The files on disk are never touched.

`python tests/sim/mutate.py --refresh` looks for the seed that finds each mutant first, and writes the hints anew.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pprint
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

SEEDS = {"log": range(400), "node": range(200)}
"""What a mutant is given at most, by world; the same seeds are played on the code as it is."""
UNIT = Path(__file__).parents[1] / "unit"
CATALOGUES = {"log": "mutants", "node": "node_mutants"}


@dataclass(frozen=True)
class Mutant:
    name: str
    module: str
    old: str
    """Occurs exactly once in the module."""
    new: str
    breaks: str
    """What goes wrong, in a word or two."""
    test: str = ""
    """The unit test that finds it, where hardly any seed does: `storage/test_x.py::test_y`, in tests/unit."""


def mutated(source: str, mutant: Mutant) -> str:
    found = source.count(mutant.old)
    if found != 1:
        raise SystemExit(f"{mutant.name}: found {found} times in {mutant.module}, expected once:\n{mutant.old}")
    return source.replace(mutant.old, mutant.new)


# In this process.


class NotHere(Exception):
    """The mutant needs a process of its own."""


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Raises `NotHere`."""
    if mutant.test or _needs_reference(mutant):
        raise NotHere(mutant.name)
    module = importlib.import_module(mutant.module)
    assert module.__file__ is not None
    source = Path(module.__file__).read_text()
    before = dict(_codes(compile(source, module.__file__, "exec", dont_inherit=True)))
    after = dict(_codes(compile(mutated(source, mutant), module.__file__, "exec", dont_inherit=True)))
    swapped: list[tuple[FunctionType, CodeType]] = []
    for function in _functions(module):
        name = function.__code__.co_qualname
        if name in after and name in before and _essence(after[name]) != _essence(before[name]):
            if after[name].co_freevars != function.__code__.co_freevars:
                raise NotHere(mutant.name)
            swapped.append((function, function.__code__))
    if not swapped:
        raise NotHere(mutant.name)
    try:
        for function, _ in swapped:
            function.__code__ = after[function.__code__.co_qualname]
        yield
    finally:
        for function, code in swapped:
            function.__code__ = code


def _essence(code: CodeType) -> tuple[Any, ...]:
    """All but where it stands; also of what is defined inside, such as a comprehension."""
    consts = tuple(_essence(one) if isinstance(one, CodeType) else (type(one), one) for one in code.co_consts)
    return code.co_code, consts, code.co_names, code.co_varnames


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one.co_qualname, one
            yield from _codes(one)


def _functions(holder: ModuleType | type) -> Iterator[FunctionType]:
    name = holder.__name__ if isinstance(holder, ModuleType) else holder.__module__
    for value in list(vars(holder).values()):
        if isinstance(value, property):
            parts: list[Any] = [value.fget, value.fset]
        else:
            parts = [getattr(value, "__func__", value)]
        for part in parts:
            inner = getattr(part, "__wrapped__", part)
            if isinstance(inner, FunctionType) and inner.__module__ == name:
                yield inner
        if isinstance(value, type) and value.__module__ == name:
            yield from _functions(value)


# In a process of its own.


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType | None:  # noqa: ARG002 - the one module there is
        source = self.get_data(self.path).decode()
        return compile(mutated(source, self._mutant), self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        return importlib.util.spec_from_loader(fullname, _Loader(self._mutant, spec.origin))


def _needs_reference(mutant: Mutant) -> bool:
    """Which kernel runs is settled at import."""
    return mutant.module.startswith("ottla.kernel.reference.")


# Hunting.


def found_by(world: str, hint: int | None) -> tuple[int, Exception] | None:
    """The first seed that fails, and how; the hint is tried before all others."""
    from ottla.sim.worlds import WORLDS

    hints = () if hint is None else (hint,)
    for seed in (*hints, *(seed for seed in SEEDS[world] if seed != hint)):
        failure = WORLDS[world](seed).failure
        if failure is not None:
            return seed, failure
    return None


def survives(mutant: Mutant, world: str, hint: int | None) -> str | None:
    """What is to be said of a mutant that nothing finds; None if it is found."""
    try:
        with planted(mutant):
            return None if found_by(world, hint) is not None else f"{mutant.name} survived"
    except NotHere:
        command = [sys.executable, __file__, mutant.name, world]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        is_found = result.returncode == 0 and f"{mutant.name}: found by " in result.stdout
        return None if is_found else result.stdout + result.stderr


def source_with(mutant: Mutant) -> CodeType:
    """The code of the mutant, which must be one change of code that is there."""
    spec = importlib.util.find_spec(mutant.module)
    assert spec is not None
    assert spec.origin is not None
    return compile(mutated(Path(spec.origin).read_text(), mutant), mutant.module, "exec")


def catalogue_of(world: str) -> ModuleType:
    return importlib.import_module(CATALOGUES[world])


def main(name: str, world: str = "log") -> int:
    if name == "--refresh":
        for one in CATALOGUES:
            refresh(one)
        return 0
    catalogue = catalogue_of(world)
    [mutant] = [one for one in catalogue.MUTANTS if one.name == name]
    if _needs_reference(mutant):
        os.environ["OTTLA_KERNEL"] = "reference"
    sys.meta_path.insert(0, _Finder(mutant))
    if mutant.test:
        return _tested(mutant)
    found = found_by(world, catalogue.FOUND_BY.get(name))
    if found is None:
        print(f"{name}: survived {len(SEEDS[world])} seeds")
        return 1
    print(f"{name}: found by seed {found[0]}: {type(found[1]).__name__}: {str(found[1])[:200]}")
    return 0


def _tested(mutant: Mutant) -> int:
    import pytest

    options = ["-q", "-n", "0", "-p", "no:cacheprovider"]
    if pytest.main([*options, str(UNIT / mutant.test)]) != pytest.ExitCode.TESTS_FAILED:
        print(f"{mutant.name}: survived {mutant.test}")
        return 1
    print(f"{mutant.name}: found by {mutant.test}")
    return 0


def refresh(world: str) -> None:
    """A hint that holds stays as it is."""
    catalogue, hints = catalogue_of(world), dict[str, int]()
    for mutant in catalogue.MUTANTS:
        hint = catalogue.FOUND_BY.get(mutant.name)
        try:
            with planted(mutant):
                found = found_by(world, hint)
        except NotHere:
            if hint is not None:
                hints[mutant.name] = hint
            continue
        if found is not None:
            hints[mutant.name] = found[0]
        now = hints.get(mutant.name)
        print(f"{world} {mutant.name}: {hint} {'holds' if now == hint else f'-> {now}'}", flush=True)
    assert catalogue.__file__ is not None
    path = Path(catalogue.__file__)
    table = pprint.pformat(hints, width=100, sort_dicts=False).replace("{", "{\n ").replace("}", ",\n}")
    table = re.sub(r"(?m)^ +", "    ", table).replace("'", '"')
    path.write_text(re.sub(r"(?s)FOUND_BY = \{.*?\n\}", f"FOUND_BY = {table}", path.read_text()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
