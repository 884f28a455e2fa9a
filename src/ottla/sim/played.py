"""Input and result of running one seed, in every world: its variation, its result, the violation."""

from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from ottla.sim.transcript import Transcript


class Violation(AssertionError):
    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


@dataclass(frozen=True)
class Variation:
    """A seed with parts of its swarm left out. The remaining randomness can be drawn again, because leaving parts out
    changes it."""

    without: tuple[str, ...] = ()
    salt: int = 0

    def chance(self, seed: int, drawn: Random) -> Random:
        """The randomness of the run after its swarm was drawn."""
        return Random(f"{seed}/{self.salt}") if self.salt else drawn


AS_DRAWN = Variation()


@dataclass(frozen=True)
class PlayedSeed:
    seed: int
    transcript: Transcript = field(repr=False)
    losses: int
    steps: int
    seconds: float
    """Of virtual time."""
    failure: Exception | None

    @cached_property
    def lines(self) -> list[str]:
        return self.transcript.lines

    @cached_property
    def digest(self) -> str:
        return self.transcript.digest()

    def summary(self) -> str:
        result = "failed" if self.failure else "ok"
        text = f"seed {self.seed} {result}: trace {self.digest}, {len(self.lines)} lines, {self.losses} power losses"
        return f"{text}\n  {type(self.failure).__name__}: {self.failure}" if self.failure else text
