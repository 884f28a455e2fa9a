"""Take one safety check out of the code and see whether the simulator notices.

`python tests/sim/mutate.py NAME [WORLD]` changes one place of one module as it is imported, plays the mutant's seeds
and ends with 0 when one of them fails, with 1 when the mutant survives. The files on disk are never touched.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType

SEEDS = {"log": range(400), "node": range(200)}
"""What a mutant is given at most, by world; the same seeds are played on the code as it is."""


@dataclass(frozen=True)
class Mutant:
    name: str
    module: str
    old: str
    """Occurs exactly once in the module."""
    new: str
    breaks: str
    """What goes wrong, in a word or two."""


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


def mutated(source: str, mutant: Mutant) -> str:
    found = source.count(mutant.old)
    if found != 1:
        raise SystemExit(f"{mutant.name}: found {found} times in {mutant.module}, expected once:\n{mutant.old}")
    return source.replace(mutant.old, mutant.new)


def main(name: str, world: str = "log") -> int:
    catalogue = importlib.import_module("mutants" if world == "log" else f"{world}_mutants")
    [mutant] = [one for one in catalogue.MUTANTS if one.name == name]
    if mutant.module.startswith("ottla.kernel.reference."):
        os.environ["OTTLA_KERNEL"] = "reference"
    sys.meta_path.insert(0, _Finder(mutant))
    from ottla.sim.worlds import WORLDS

    seeds = SEEDS[world]
    for seed in (catalogue.FOUND_BY.get(name, 0), *seeds):
        failure = WORLDS[world](seed).failure
        if failure is not None:
            print(f"{name}: found by seed {seed}: {type(failure).__name__}: {str(failure)[:200]}")
            return 0
    print(f"{name}: survived {len(seeds)} seeds")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
