"""Runs one seed from start to end."""

from random import Random

from ottla.sim.log.swarm import draw
from ottla.sim.log.workload import Workload
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.faults import PowerLoss
from ottla.sim.machine.loop import SimLoop, run
from ottla.sim.played import AS_DRAWN, PlayedSeed, Variation
from ottla.sim.transcript import Transcript


def run_seed(seed: int, variation: Variation = AS_DRAWN) -> PlayedSeed:
    """Run the seed; a failure is part of the result, not an exception."""
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
            failure = error if isinstance(error, Exception) else RuntimeError(f"unexpected: {error}")
            transcript.note(f"failed: {type(error).__name__}: {error}")
    return PlayedSeed(seed, transcript, workload.losses, workload.disk.step, clock.seconds, failure)
