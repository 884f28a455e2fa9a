"""Running one seed from start to end."""

from dataclasses import dataclass, field
from functools import cached_property
from random import Random

from ottla.sim.clock import SimClock
from ottla.sim.loop import SimLoop, run
from ottla.sim.swarm import draw
from ottla.sim.transcript import Transcript
from ottla.sim.workload import Workload


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


def run_seed(seed: int) -> Outcome:
    """Play the seed; what goes wrong is part of the outcome, not an exception."""
    clock = SimClock()
    transcript = Transcript(clock)
    random = Random(seed)
    workload = Workload(draw(random), random, clock, transcript)
    failure: Exception | None = None

    async def main(_: SimLoop) -> None:
        await workload.play()

    with transcript.listening():
        try:
            run(main, seed, clock)
        except Exception as error:
            failure = error
            transcript.note(f"failed: {type(error).__name__}: {error}")
    return Outcome(seed, transcript, workload.losses, workload.disk.step, clock.seconds, failure)
