"""Runs one seed of the world `node` from start to end."""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Any

from ottla.observe.trace import Event
from ottla.sim.machine.clock import SimClock
from ottla.sim.machine.faults import PowerLoss
from ottla.sim.machine.loop import SimLoop, run
from ottla.sim.machine.process import make_task
from ottla.sim.node.swarm import draw
from ottla.sim.node.world import NodeWorld
from ottla.sim.played import AS_DRAWN, PlayedSeed, Variation, Violation
from ottla.sim.transcript import Transcript

NUISANCE = "nuisance"
EXCUSES = ("max.connections", "an incomplete frame")


OF_BROKEN_DISKS = (
    "directory.offline",
    "log.offline",
    "partition.offline",
    "coordinator.not_loaded",
    "cleaning.failed",
    "checkpoint.failed",
    "flush.failed",
    "retention.failed",
    "upkeep.failed",
)
"""Events that report a damaged disk; a violation if no fault has struck."""


class NodeTranscript(Transcript):
    """A transcript that also detects unexpected exceptions of the node, and reports of damage on a healthy disk."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__(clock)
        self.unforeseen: list[BaseException] = []
        self.is_disk_whole: Callable[[], bool] = lambda: False

    def event(self, event: Event) -> None:
        super().event(event)
        if event.name in OF_BROKEN_DISKS and self.is_disk_whole() and not _is_deleted(event):
            self.unforeseen.append(Violation("I23", f"nothing is wrong with the disk, but the node says: {event}"))
        elif event.name == "request.failed":
            self.unforeseen.append(Violation("I10", f"a request could not be handled: {event}"))
        elif event.level >= logging.ERROR:
            self.unforeseen.append(Violation("defect", str(event)))
        elif event.name == "connection.refused" and not _deserved(event):
            self.unforeseen.append(Violation("I10", f"a client that did nothing wrong was cut off: {event}"))


def _is_deleted(event: Event) -> bool:
    """Whether the event is about a log that was deleted just before upkeep began on it; that is no violation."""
    return str(event.fields.get("reason", "")).endswith("is not in use any more")


def _deserved(refusal: Event) -> bool:
    peer, reason = refusal.fields["peer"], refusal.fields["reason"]
    return bool(peer.startswith(NUISANCE) or reason.startswith(EXCUSES))


def run_seed(seed: int, variation: Variation = AS_DRAWN) -> PlayedSeed:
    """Run the seed; a failure is part of the result, not an exception."""
    clock = SimClock()
    transcript = NodeTranscript(clock)
    random = Random(seed)
    world: NodeWorld | None = None
    failure: BaseException | None = None

    def escaped(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An uncaught exception: of the node, of a client, or of a checker in a callback."""
        error = context.get("exception")
        if error is not None and not isinstance(error, PowerLoss | asyncio.CancelledError):
            transcript.unforeseen.append(error)

    async def main(loop: SimLoop) -> None:
        nonlocal world
        loop.set_task_factory(make_task)
        loop.set_exception_handler(escaped)
        swarm = draw(random, seed).reduced(variation.without)
        world = NodeWorld(swarm, variation.chance(seed, random), clock, transcript, transcript.unforeseen.append)
        transcript.is_disk_whole = world.is_disk_whole
        await world.play()

    with transcript.listening():
        try:
            run(main, seed, clock)
        except Exception as error:
            failure = error
        if transcript.unforeseen:
            failure = transcript.unforeseen[0]
        if failure is not None:
            transcript.note(f"failed: {type(failure).__name__}: {failure}")
    machine = world.machine if world is not None else None
    return PlayedSeed(
        seed,
        transcript,
        machine.losses if machine else 0,
        machine.disk.step if machine else 0,
        clock.seconds,
        failure if isinstance(failure, Exception) else None,
    )
