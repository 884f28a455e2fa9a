"""The worlds in which seeds are run."""

import gc
from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

from ottla.sim.log.run import run_seed
from ottla.sim.log.swarm import draw
from ottla.sim.node import run as node
from ottla.sim.node import swarm as node_swarm
from ottla.sim.played import AS_DRAWN, PlayedSeed, Variation, Violation


class Reducible(Protocol):
    """The configuration that a seed draws in any world. Parts of it can be left out to shrink a failure."""

    def parts(self) -> list[str]: ...

    def reduced(self, without: tuple[str, ...], /) -> "Reducible": ...


class WorldSpec(NamedTuple):
    name: str
    run: Callable[[int, Variation], PlayedSeed]
    draw: Callable[[int], Reducible]

    def __call__(self, seed: int, variation: Variation = AS_DRAWN) -> PlayedSeed:
        """Run a seed. Garbage is collected only between seeds: a run leaves little garbage, and collecting during it
        costs a tenth of the time."""
        was_enabled = gc.isenabled()
        gc.disable()
        gc.collect(1)  # The garbage of the previous run, whose result most callers have dropped by now.
        try:
            return self.run(seed, variation)
        finally:
            if was_enabled:
                gc.enable()

    def replay_command(self, seed: int, variation: Variation = AS_DRAWN) -> str:
        words = ["python -m ottla.sim", *([] if self.name == "log" else [self.name]), f"--seed {seed}"]
        words += [f"--without {','.join(variation.without)}"] if variation.without else []
        words += [f"--salt {variation.salt}"] if variation.salt else []
        return " ".join([*words, "--trace"])


WORLDS: dict[str, WorldSpec] = {
    "log": WorldSpec("log", run_seed, lambda seed: draw(Random(seed))),
    "node": WorldSpec("node", node.run_seed, lambda seed: node_swarm.draw(Random(seed), seed)),
}
"""`log`: one log on a faulty disk; `node`: a whole node with its clients on a faulty network."""


def kind_of(failure: Exception) -> str:
    """The kind of a failure: the broken invariant, or the type of an unexpected exception."""
    return failure.invariant if isinstance(failure, Violation) else type(failure).__name__
