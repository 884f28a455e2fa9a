"""The worlds that seeds are played in."""

import gc
from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

from ottla.sim.checkers import Violation
from ottla.sim.node import run as node
from ottla.sim.node import swarm as node_swarm
from ottla.sim.run import AS_DRAWN, Outcome, Variation, run_seed
from ottla.sim.swarm import draw


class Reducible(Protocol):
    """A swarm of any world."""

    def parts(self) -> list[str]: ...

    def reduced(self, without: tuple[str, ...], /) -> "Reducible": ...


class World(NamedTuple):
    name: str
    run: Callable[[int, Variation], Outcome]
    draw: Callable[[int], Reducible]

    def __call__(self, seed: int, variation: Variation = AS_DRAWN) -> Outcome:
        """Garbage is collected between seeds: what a run leaves behind is little, and looking for it costs a tenth."""
        was_enabled = gc.isenabled()
        gc.disable()
        gc.collect(1)  # Of the run before: by now most callers have let go of it.
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


WORLDS: dict[str, World] = {
    "log": World("log", run_seed, lambda seed: draw(Random(seed))),
    "node": World("node", node.run_seed, lambda seed: node_swarm.draw(Random(seed), seed)),
}
"""`log`: one log on a faulty disk; `node`: a whole node with its clients on a faulty network."""


def kind_of(failure: Exception) -> str:
    """What was broken: the invariant, or the type of an exception that nobody expected."""
    return failure.invariant if isinstance(failure, Violation) else type(failure).__name__
