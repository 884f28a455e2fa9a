"""Running one seed from start to end."""

from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from ottla.sim.clock import SimClock
from ottla.sim.faults import PowerLoss
from ottla.sim.loop import SimLoop, run
from ottla.sim.swarm import draw
from ottla.sim.transcript import Transcript
from ottla.sim.workload import Workload


@dataclass(frozen=True)
class Variation:
    """A seed with parts of its swarm left out. What is left to chance can be drawn anew, as leaving out changes it."""

    without: tuple[str, ...] = ()
    salt: int = 0

    def chance(self, seed: int, drawn: Random) -> Random:
        """What the run goes by once its swarm is drawn."""
        return Random(f"{seed}/{self.salt}") if self.salt else drawn


AS_DRAWN = Variation()


@dataclass(frozen=True)
class Outcome:
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


def run_seed(seed: int, variation: Variation = AS_DRAWN) -> Outcome:
    """Play the seed; what goes wrong is part of the outcome, not an exception."""
    clock = SimClock()
    transcript = Transcript(clock)
    random = Random(seed)
    swarm = draw(random).reduced(variation.without)
    workload = Workload(swarm, variation.chance(seed, random), clock, transcript)
    failure: Exception | None = None

    async def main(_: SimLoop) -> None:
        await workload.play()

    with transcript.listening():
        try:
            run(main, seed, clock)
        except (Exception, PowerLoss) as error:
            failure = error if isinstance(error, Exception) else RuntimeError(f"nobody expected that {error}")
            transcript.note(f"failed: {type(error).__name__}: {error}")
    return Outcome(seed, transcript, workload.losses, workload.disk.step, clock.seconds, failure)
